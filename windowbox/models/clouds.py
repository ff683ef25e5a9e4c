"""The table of clouds: what is known of each without loading it.

A seventh cloud takes a row here and a folder in `clouds`, which has the rest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A type of provider besides `local`."""

    type: str
    dns: str = ""
    """The type of its DNSRecords. Empty: it has none."""
    admission: bool = True
    """Its objects in the garden are checked and changed."""
    namespaced_profiles: bool = True
    """NamespacedCloudProfiles, too."""
    seeds: bool = False
    """Seeds, too."""
    provider_secrets: bool = False
    """The Secret `cloudprovider` of a Shoot gets further keys."""
    backups: bool = True
    bastions: bool = True


CLOUDS = (
    Cloud(type="alicloud", dns="alicloud-dns", namespaced_profiles=False),
    Cloud(type="aws", dns="aws-route53", provider_secrets=True),
    Cloud(type="azure", dns="azure-dns"),
    Cloud(type="equinixmetal", admission=False, backups=False, bastions=False),
    Cloud(type="gcp", dns="google-clouddns", seeds=True),
    Cloud(type="openstack", dns="openstack-designate", provider_secrets=True),
)
CLOUD_TYPES = tuple(one.type for one in CLOUDS)

# The types of extension objects, each with its cloud.
BY_TYPE = {one.type: one.type for one in CLOUDS}
BY_DNS_TYPE = {one.dns: one.type for one in CLOUDS if one.dns}
WITH_BACKUPS = {one.type: one.type for one in CLOUDS if one.backups}
WITH_BASTIONS = {one.type: one.type for one in CLOUDS if one.bastions}

IN_GARDENS = tuple(one for one in CLOUDS if one.admission)
WITH_PROVIDER_SECRETS = tuple(one for one in CLOUDS if one.provider_secrets)
