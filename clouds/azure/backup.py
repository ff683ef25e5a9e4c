"""Containers of a storage account, which a bucket has for itself."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from clouds.frame import inventory
from clouds.frame.services.backups import Backups
from windowbox.models.objects import mapping

_DOMAINS = {
    "azurepublic": "blob.core.windows.net",
    "azuregovernment": "blob.core.usgovcloudapi.net",
    "azurechina": "blob.core.chinacloudapi.cn",
}
_REGIONS = {"usgov": "azuregovernment", "usdod": "azuregovernment", "china": "azurechina"}
"""The beginnings of regions that are not in the public cloud."""


def _generated(bucket: str, spec: Mapping[str, Any]) -> dict[str, str]:
    """The account's name, a key that opens nothing, and the domain of its cloud."""
    configured = mapping(mapping(spec.get("providerConfig")).get("cloudConfiguration")).get("name")
    region = str(spec.get("region") or "").lower()
    of_region = next((name for start, name in _REGIONS.items() if region.startswith(start)), "azurepublic")
    name = str(configured or of_region).lower()
    return {
        "storageAccount": inventory.made_id("bkp", bucket, digits=15),
        "storageKey": base64.b64encode(inventory.digest("storage key", bucket).encode()).decode(),
        "domain": _DOMAINS.get(name, _DOMAINS["azurepublic"]),
    }


BACKUPS = Backups(generated=_generated, entry_keys=("storageAccount", "storageKey"))
