"""What GCP offers besides networks and machines: Cloud DNS, persistent disks."""

from __future__ import annotations

from clouds.frame import inventory
from clouds.frame.services.dns import Dns
from clouds.frame.services.volumes import SnapshotClass, StorageClass, StorageSite, Volumes, config_of
from clouds.gcp.api import ControlPlaneConfig

_LONGEST = 63


def _resource(name: str) -> str:
    """Letters, digits and dashes; the digits at the end tell `a.b-c` from `a-b.c`."""
    digits = inventory.digest("managed zone", name)[:5]
    return f"{name.replace('.', '-').replace('_', '-')[: _LONGEST - 8]}-{digits}"


DNS = Dns(zone_id=_resource, form="{project}/{id}")

_DRIVER = "pd.csi.storage.gke.io"
_TYPES = {"default": "pd-balanced", "gce-sc-hdd": "pd-standard", "gce-sc-fast": "pd-ssd"}
"""Names of classes, and their types of disks."""


def volumes(site: StorageSite) -> Volumes:
    config = config_of(ControlPlaneConfig, site)
    storage = config.storage
    managed = not storage or storage.managed_default_storage_class is not False
    snapshots = not storage or storage.managed_default_volume_snapshot_class is not False
    classes = tuple(
        StorageClass(
            name=name,
            provisioner=_DRIVER,
            parameters={"type": type_},
            default=managed and name == "default",
        )
        for name, type_ in _TYPES.items()
    )
    return Volumes(classes=classes, drivers=(_DRIVER,), snapshots=SnapshotClass(_DRIVER, snapshots))
