"""What Alibaba Cloud offers besides networks and machines: DNS, OSS, cloud disks."""

from __future__ import annotations

from clouds.alicloud.api import ControlPlaneConfig
from clouds.frame import inventory
from clouds.frame.decoding import decode_leniently
from clouds.frame.services.backups import Backups
from clouds.frame.services.dns import Dns
from clouds.frame.services.volumes import StorageClass, StorageSite, Volumes

DNS = Dns(
    zone_id=lambda name: inventory.digest("domain", name)[:32],
    form="{name}:{id}",
    keys={"ACCESS_KEY_ID": "accessKeyID", "ACCESS_KEY_SECRET": "accessKeySecret"},
)

BACKUPS = Backups(for_etcd=lambda region: {"storageEndpoint": f"https://oss-{region}.aliyuncs.com/"})

_DRIVER = "diskplugin.csi.alibabacloud.com"
_PARAMETERS = {
    "csi.storage.k8s.io/fstype": "ext4",
    "type": "cloud_essd",
    "readOnly": "false",
    "encrypted": "true",
}


def volumes(site: StorageSite) -> Volumes:
    if site.config is not None:  # ALL-4: leniently, because of a field of former versions
        decode_leniently(ControlPlaneConfig, site.config, "spec.providerConfig")
    made = StorageClass(name="default", provisioner=_DRIVER, parameters=_PARAMETERS, default=True)
    return Volumes(classes=(made,), drivers=(_DRIVER,), smallest="20Gi")
