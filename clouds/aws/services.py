"""What AWS offers besides networks and machines: Route 53, S3, EBS."""

from __future__ import annotations

from clouds.aws.api import ControlPlaneConfig
from clouds.frame import inventory
from clouds.frame.services.backups import Backups
from clouds.frame.services.dns import Dns
from clouds.frame.services.volumes import SnapshotClass, StorageClass, StorageSite, Volumes, config_of

DNS = Dns(
    zone_id=lambda name: inventory.made_id("Z0", name, digits=18).upper(),
    keys={"AWS_ACCESS_KEY_ID": "accessKeyID", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"},
)

BACKUPS = Backups(for_etcd=lambda region: {"region": region})

_DRIVER = "ebs.csi.aws.com"


def volumes(site: StorageSite) -> Volumes:
    config = config_of(ControlPlaneConfig, site)
    managed = not config.storage or config.storage.managed_default_class is not False
    made = StorageClass(
        name="default", provisioner=_DRIVER, parameters={"encrypted": "true"}, default=managed
    )
    return Volumes(classes=(made,), drivers=(_DRIVER,), snapshots=SnapshotClass(_DRIVER, managed))


def public_name(address: str, region: str) -> str:
    """The public name of an instance. The oldest region has a form of its own."""
    where = "compute-1" if region == "us-east-1" else f"{region}.compute"
    return f"ec2-{address.replace('.', '-')}.{where}.amazonaws.com"
