"""MachineClasses of type alicloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clouds.alicloud import profile
from clouds.alicloud.api import CloudProfileConfig
from clouds.frame import inventory, machineclasses
from clouds.frame.machineclasses import Instance, Machine, Machines, text
from clouds.frame.pools import Group, Inputs, Site, class_hash, gigabytes
from windowbox.models.gardener.worker import WorkerPool
from windowbox.models.objects import mapping, mappings


def groups(pool: WorkerPool, site: Site, raw_config: str, image: Mapping[str, Any]) -> Iterator[Group]:
    """A group for each zone, which has its name."""
    suffix, zones = class_hash(pool, site, raw_config, hash_inputs(pool, site)), pool.zones or []
    capacity = machineclasses.capacity_of(pool)
    for i, zone in enumerate(zones):
        name = f"{site.namespace}-{pool.name}-{zone}"
        labels = {"topology.diskplugin.csi.alibabacloud.com/zone": zone}
        spec = _provider_spec(pool, site, zone, str(image["id"]))
        template = machineclasses.node_template(pool, site, zone, capacity)
        yield Group(pool, name, f"{name}-{suffix}", zone, i, len(zones), spec, labels, template)


def used_image(pool: WorkerPool, site: Site) -> dict[str, Any]:
    """The image of a pool as the status of the Worker lists it (ALL-Z6). Malformed if there is none.

    The Infrastructure copies images into the account of the Shoot, encrypted ones too, and remembers them.
    """
    wanted, _ = machineclasses.image_and_architecture(pool)
    is_encrypted = _is_encrypted(pool)
    head = {"name": wanted.name, "version": wanted.version, "encrypted": is_encrypted}
    if not is_encrypted:
        config = machineclasses.profile_config(CloudProfileConfig, site)
        if (found := profile.image_id(config, wanted.name, wanted.version, site.region)) is not None:
            return {**head, "id": found}
    for one in [*mappings(site.infrastructure.get("machineImages")), *site.used_images]:
        same = (one.get("name"), one.get("version")) == (wanted.name, wanted.version)
        if same and bool(one.get("encrypted")) == is_encrypted:
            return {**head, "id": one["id"]}
    raise machineclasses.unknown_image(wanted, "encrypted" if is_encrypted else "unencrypted")


def _is_encrypted(pool: WorkerPool) -> bool:
    """Of the system disk (ALI-W4)."""
    return bool(pool.volume and pool.volume.encrypted)


def hash_inputs(pool: WorkerPool, site: Site, zone: str = "") -> Inputs:
    """ALI-W7."""
    volumes = machineclasses.volume_inputs(pool)
    return Inputs(volumes, volumes)


def _provider_spec(pool: WorkerPool, site: Site, zone: str, image: str) -> dict[str, Any]:
    vpc, root = mapping(site.infrastructure.get("vpc")), machineclasses.root_volume(pool)
    spec: dict[str, Any] = {
        "imageID": image,
        "instanceType": pool.machine_type,
        "region": site.region,
        "zoneID": zone,
        "securityGroupID": machineclasses.for_nodes(vpc.get("securityGroups"), "security group")["id"],
        "vSwitchID": machineclasses.for_nodes(vpc.get("vswitches"), "vSwitch", zone)["id"],
        "systemDisk": {**machineclasses.given(category=root.type), "size": gigabytes(root.size)},
        "instanceChargeType": "PostPaid",
        "internetChargeType": "PayByTraffic",
        "internetMaxBandwidthIn": 5,
        "spotStrategy": "NoSpot",
        "tags": {
            f"kubernetes.io/cluster/{site.namespace}": "1",
            f"kubernetes.io/role/worker/{site.namespace}": "1",
            # Tags without a value are not allowed.
            **{name: value for name, value in (pool.labels or {}).items() if value},
        },
    }
    if disks := _data_disks(pool, site):
        spec["dataDisks"] = disks
    return spec


def _data_disks(pool: WorkerPool, site: Site) -> list[dict[str, Any]]:
    return [
        {
            "name": volume.name,
            "size": gigabytes(volume.size),
            "deleteWithInstance": True,
            "description": f"{site.namespace}-datavol-{volume.name}",
            **machineclasses.given(category=volume.type, encrypted=volume.encrypted),
        }
        for volume in pool.data_volumes or []
    ]


def instance(spec: Mapping[str, Any], template: Mapping[str, Any], machine: Machine) -> Instance:
    """ALL-Z7."""
    region = text(spec, "region")
    id_ = inventory.made_id("i-", machine.owner, machine.name, digits=20)
    return Instance(
        provider_id=f"{region}.{id_}",
        image=text(spec, "imageID"),
        type=text(spec, "instanceType"),
        region=region,
        zone=text(spec, "zoneID"),
    )


MACHINES = Machines(
    provider="Alicloud",
    groups=groups,
    used_image=used_image,
    instance=instance,
    unknown_image="InvalidImageId.NotFound: The specified ImageId {image} does not exist.",
    escapes_versions=False,
)
