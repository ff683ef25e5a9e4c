"""What Azure offers besides networks and machines: DNS, storage accounts, disks and files."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from clouds.azure.api import ControlPlaneConfig
from clouds.frame import inventory
from clouds.frame.services.backups import Backups
from clouds.frame.services.dns import Dns
from clouds.frame.services.volumes import SnapshotClass, StorageClass, StorageSite, Volumes, config_of
from windowbox.models.objects import mapping

DNS = Dns(
    zone_id=str,
    form="dns/{id}",
    keys={
        "AZURE_SUBSCRIPTION_ID": "subscriptionID",
        "AZURE_TENANT_ID": "tenantID",
        "AZURE_CLIENT_ID": "clientID",
        "AZURE_CLIENT_SECRET": "clientSecret",
    },
)

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

_DISK, _FILE = "disk.csi.azure.com", "file.csi.azure.com"
_DISKS = {
    "default": "StandardSSD_LRS",
    "managed-standard-hdd": "Standard_LRS",
    "managed-standard-ssd": "StandardSSD_LRS",
    "managed-premium-ssd": "Premium_LRS",
}
"""Names of classes, and their kinds of disks."""


def volumes(site: StorageSite) -> Volumes:
    config = config_of(ControlPlaneConfig, site)
    storage = config.storage
    managed = not storage or storage.managed_default_storage_class is not False
    snapshots = not storage or storage.managed_default_volume_snapshot_class is not False
    disks = [
        StorageClass(
            name=name,
            provisioner=_DISK,
            parameters={"skuName": sku, "kind": "managed"},
            default=managed and name == "default",
        )
        for name, sku in _DISKS.items()
    ]
    files = StorageClass(name="files", provisioner=_FILE, parameters={"skuName": "Standard_LRS"})
    return Volumes(classes=(*disks, files), drivers=(_DISK, _FILE), snapshots=SnapshotClass(_DISK, snapshots))
