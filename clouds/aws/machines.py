"""MachineClasses of type aws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clouds.aws import profile
from clouds.aws.api import (
    CloudProfileConfig,
    CpuOptions,
    DataVolumeConfig,
    InstanceProfile,
    MetadataOptions,
    VolumeConfig,
    WorkerConfig,
)
from clouds.frame import inventory, machineclasses
from clouds.frame.machineclasses import Instance, Machine, Machines, text
from clouds.frame.pools import Group, Inputs, Site, class_hash, gigabytes
from windowbox.errors import Malformed
from windowbox.models import constraints
from windowbox.models.gardener.worker import Volume, WorkerPool
from windowbox.models.objects import mapping

_DISK_LETTERS = "fghijklmnop"
_TOKENS_REQUIRED = (1, 30, 0)
"""Since this version of Kubernetes, metadata needs a token where nothing is configured."""


def groups(pool: WorkerPool, site: Site, raw_config: str, image: Mapping[str, Any]) -> Iterator[Group]:
    """A group for each zone."""
    config = machineclasses.worker_config(WorkerConfig, pool)
    suffix = class_hash(pool, site, raw_config, hash_inputs(pool, site))
    capacity = machineclasses.capacity_of(pool)
    if config.node_template is not None:
        capacity |= config.node_template.capacity
    zones = pool.zones or []
    for i, zone in enumerate(zones):
        name = f"{site.namespace}-{pool.name}-z{i + 1}"
        labels = {"topology.ebs.csi.aws.com/zone": zone, "topology.kubernetes.io/zone": zone}
        spec = _provider_spec(pool, config, site, zone, str(image["ami"]))
        template = machineclasses.node_template(pool, site, zone, capacity)
        yield Group(pool, name, f"{name}-{suffix}", zone, i, len(zones), spec, labels, template)


def used_image(pool: WorkerPool, site: Site) -> dict[str, Any]:
    """The image of a pool as the status of the Worker lists it (ALL-Z6). Malformed if there is none."""
    wanted, architecture = machineclasses.image_and_architecture(pool)
    config = machineclasses.profile_config(CloudProfileConfig, site)
    found = profile.ami(config, wanted.name, wanted.version, site.region, architecture)
    if found is None and (used := machineclasses.used_before(site.used_images, wanted, architecture)):
        found = str(used.get("ami"))
    if found is None:
        raise machineclasses.unknown_image(wanted, architecture, site.region)
    return {"name": wanted.name, "version": wanted.version, "ami": found, "architecture": architecture}


def hash_inputs(pool: WorkerPool, site: Site, zone: str = "") -> Inputs:
    """AWS-W7."""
    config = machineclasses.worker_config(WorkerConfig, pool)
    volumes = machineclasses.volume_inputs(pool)
    cpu, profile_ = config.cpu_options or CpuOptions(), config.iam_instance_profile or InstanceProfile()
    options = config.instance_metadata_options or MetadataOptions()
    return Inputs(
        volumes,
        volumes
        | machineclasses.inputs(
            "providerConfig.cpuOptions", coreCount=cpu.core_count, threadsPerCore=cpu.threads_per_core
        )
        | machineclasses.inputs("providerConfig.iamInstanceProfile", arn=profile_.arn, name=profile_.name)
        | machineclasses.inputs(
            "providerConfig.instanceMetadataOptions",
            httpTokens=options.http_tokens,
            httpPutResponseHopLimit=options.http_put_response_hop_limit,
        ),
    )


def _provider_spec(
    pool: WorkerPool, config: WorkerConfig, site: Site, zone: str, image: str
) -> dict[str, Any]:
    vpc = mapping(site.infrastructure.get("vpc"))
    families = mapping(mapping(site.shoot.get("spec")).get("networking")).get("ipFamilies") or []
    interface: dict[str, Any] = {
        "subnetID": machineclasses.for_nodes(vpc.get("subnets"), "subnet", zone)["id"],
        "securityGroupIDs": [machineclasses.for_nodes(vpc.get("securityGroups"), "security group")["id"]],
    }
    if "IPv6" in families:
        interface |= {"ipv6AddressCount": 1, "ipv6PrefixCount": 1}
    spec: dict[str, Any] = {
        "ami": image,
        "region": site.region,
        "machineType": pool.machine_type,
        "srcAndDstChecksEnabled": False,
        "iam": _profile(config, site),
        "networkInterfaces": [interface],
        "tags": {
            f"kubernetes.io/cluster/{site.namespace}": "1",
            "kubernetes.io/role/node": "1",
            **(pool.labels or {}),
        },
        "blockDevices": _devices(pool, config),
    }
    if key := mapping(site.infrastructure.get("ec2")).get("keyName"):
        spec["keyName"] = key
    if options := _metadata_options(config, site):
        spec["instanceMetadataOptions"] = options
    if (cpu := config.cpu_options) is not None:
        spec["cpuOptions"] = {"coreCount": cpu.core_count, "threadsPerCore": cpu.threads_per_core}
    return spec


def _profile(config: WorkerConfig, site: Site) -> dict[str, Any]:
    given = config.iam_instance_profile
    if given is None:
        profiles = mapping(site.infrastructure.get("iam")).get("instanceProfiles")
        return {"name": machineclasses.for_nodes(profiles, "instance profile")["name"]}
    return {"name": given.name} if given.name is not None else {"arn": given.arn}


def _metadata_options(config: WorkerConfig, site: Site) -> dict[str, Any]:
    """AWS-W7: hop limit and tokens, as given, or as Kubernetes' version has them."""
    given = config.instance_metadata_options
    if given is None:
        version = mapping(mapping(site.shoot.get("spec")).get("kubernetes")).get("version")
        required = constraints.version(str(version)) >= _TOKENS_REQUIRED
        return {"httpPutResponseHopLimit": 2, "httpTokens": "required"} if required else {}
    return machineclasses.given(
        httpPutResponseHopLimit=given.http_put_response_hop_limit, httpTokens=given.http_tokens
    )


def _devices(pool: WorkerPool, config: WorkerConfig) -> list[dict[str, Any]]:
    """The root disk and the data disks in the order of their names (AWS-W2, AWS-W3)."""
    root: dict[str, Any] = {"ebs": _disk(machineclasses.root_volume(pool), config.volume)}
    volumes = machineclasses.by_name(pool.data_volumes)
    if len(volumes) > len(_DISK_LETTERS):
        raise Malformed(
            f"pool {pool.name!r:.80} has more than {len(_DISK_LETTERS)} data volumes: remove some"
        )
    if volumes:
        root["deviceName"] = "/root"
    by_name = {one.name: one for one in reversed(config.data_volumes)}
    return [
        root,
        *(
            {"deviceName": f"/dev/sd{letter}", "ebs": _disk(volume, by_name.get(volume.name))}
            for letter, volume in zip(_DISK_LETTERS, volumes, strict=False)
        ),
    ]


def _disk(volume: Volume, config: VolumeConfig | None) -> dict[str, Any]:
    disk: dict[str, Any] = {
        "volumeSize": gigabytes(volume.size),
        "encrypted": volume.encrypted is not False,
        "deleteOnTermination": True,
    }
    if volume.type is not None:
        disk["volumeType"] = volume.type
    if config is not None:
        snapshot = config.snapshot_id if isinstance(config, DataVolumeConfig) else None
        disk |= machineclasses.given(iops=config.iops, snapshotID=snapshot, throughput=config.throughput)
    return disk


def instance(spec: Mapping[str, Any], template: Mapping[str, Any], machine: Machine) -> Instance:
    """ALL-Z7. The class names no zone but that of its subnet."""
    region = text(spec, "region")
    id_ = inventory.made_id("i-", machine.owner, machine.name)
    return Instance(
        provider_id=f"aws:///{region}/{id_}",
        image=text(spec, "ami"),
        type=text(spec, "machineType"),
        region=region,
        zone=text(template, "zone"),
    )


MACHINES = Machines(
    provider="AWS",
    groups=groups,
    used_image=used_image,
    instance=instance,
    unknown_image="InvalidAMIID.NotFound: The image id '[{image}]' does not exist",
)
