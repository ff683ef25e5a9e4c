"""Zones of Designate."""

from __future__ import annotations

from uuid import UUID

from clouds.frame import inventory
from clouds.frame.services.dns import Dns

_APPLICATION = "OS_APPLICATION_CREDENTIAL_"

DNS = Dns(
    zone_id=lambda name: str(UUID(inventory.digest("zone", name)[:32], version=4)),
    keys={
        "OS_AUTH_URL": "authURL",
        "OS_DOMAIN_NAME": "domainName",
        "OS_PROJECT_NAME": "tenantName",
        "OS_USERNAME": "username",
        "OS_PASSWORD": "password",
        "OS_CACERT": "caCert",
        **{f"{_APPLICATION}{one.upper()}": f"applicationCredential{one}" for one in ("ID", "Name", "Secret")},
    },
)
