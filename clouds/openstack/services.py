"""What OpenStack offers besides networks and machines: Designate, Swift, Cinder, Manila."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from clouds.frame import inventory
from clouds.frame.decoding import decode_leniently
from clouds.frame.services.backups import Backups
from clouds.frame.services.dns import Dns
from clouds.frame.services.volumes import StorageClass, StorageSite, Volumes, config_of
from clouds.openstack import api
from clouds.openstack.api import CloudProfileConfig, ControlPlaneConfig

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

BACKUPS = Backups(for_etcd=lambda region: {"region": region})

_CINDER, _MANILA = "cinder.csi.openstack.org", "nfs.manila.csi.openstack.org"


def volumes(site: StorageSite) -> Volumes:
    config = config_of(ControlPlaneConfig, site)
    what = "the providerConfig of the CloudProfile"
    profile = decode_leniently(CloudProfileConfig, site.profile_config, what)
    classes = [*_cinder(profile)]
    manila = config.storage and config.storage.csi_manila and config.storage.csi_manila.enabled
    if manila:  # OST-C8
        classes += [
            StorageClass(
                name=f"csi-manila-nfs-{zone}",
                provisioner=_MANILA,
                parameters={"type": "default", "availability": zone},
            )
            for zone in sorted(set(site.zones))
        ]
    return Volumes(classes=tuple(classes), drivers=(_CINDER, _MANILA) if manila else (_CINDER,))


def _cinder(profile: CloudProfileConfig) -> Iterator[StorageClass]:
    """The classes of the profile; without any, two."""
    for one in profile.storage_classes or [
        api.StorageClass(name="default", default=True),
        api.StorageClass(name="default-class"),
    ]:
        is_default = "true" if one.default else "false"
        yield StorageClass(
            name=one.name,
            provisioner=one.provisioner or _CINDER,
            parameters=one.parameters,
            annotations={"storageclass.kubernetes.io/is-default-class": is_default, **one.annotations},
            labels=one.labels,
            reclaim_policy=one.reclaim_policy or "Delete",
            binding=one.volume_binding_mode or "WaitForFirstConsumer",
        )
