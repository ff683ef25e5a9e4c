"""Zones of Azure DNS: named by their resource group and their name."""

from __future__ import annotations

from clouds.frame.services.dns import Dns

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
