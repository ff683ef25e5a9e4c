"""MachineClasses of type gcp."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clouds.frame import machineclasses
from clouds.frame.machineclasses import Instance, Machine, Machines, text
from clouds.frame.pools import Group, Inputs, Site, class_hash, gigabytes
from clouds.frame.quantities import is_zero
from clouds.gcp import worker
from clouds.gcp.api import CloudProfileConfig, DataVolume, Encryption, WorkerConfig
from windowbox.models.gardener.worker import Volume, WorkerPool
from windowbox.models.objects import mapping, mappings

_ILLEGAL_IN_LABELS = re.compile(r"[^a-z0-9_-]")
_LONGEST_LABEL = 63
_COMPUTE = "https://www.googleapis.com/auth/compute"
"""The scope of the account that the Infrastructure made."""


def groups(pool: WorkerPool, site: Site, raw_config: str, image: Mapping[str, Any]) -> Iterator[Group]:
    """A group for each zone."""
    config, zones = machineclasses.worker_config(WorkerConfig, pool), pool.zones or []
    suffix = class_hash(pool, site, raw_config, hash_inputs(pool, site))
    capacity = machineclasses.capacity_of(pool)
    if config.node_template is not None:
        capacity |= config.node_template.capacity
    is_known = bool(capacity)
    if config.gpu is not None:
        capacity["gpu"] = str(config.gpu.count)
    spec = _provider_spec(pool, config, site, str(image["image"]))
    spec["scheduling"] = {
        "automaticRestart": True,
        # Machines with GPUs cannot move while they run (GCP-W9).
        "onHostMaintenance": "MIGRATE" if is_zero(str(capacity.get("gpu", "0"))) else "TERMINATE",
        "preemptible": False,
    }
    for i, zone in enumerate(zones):
        name = f"{site.namespace}-{pool.name}-z{i + 1}"
        labels, in_zone = {"topology.gke.io/zone": zone}, {**spec, "zone": zone}
        template = machineclasses.node_template(pool, site, zone, capacity if is_known else None)
        yield Group(pool, name, f"{name}-{suffix}", zone, i, len(zones), in_zone, labels, template)


def used_image(pool: WorkerPool, site: Site) -> dict[str, Any]:
    """The image of a pool as the status of the Worker lists it (ALL-Z6). Malformed if there is none."""
    wanted, architecture = machineclasses.image_and_architecture(pool)
    config = machineclasses.profile_config(CloudProfileConfig, site)
    entries = machineclasses.versions(config.machine_images, wanted)
    found = next((one.image for one in entries if one.architecture == architecture), None)
    if found is None and (used := machineclasses.used_before(site.used_images, wanted, architecture)):
        found = str(used.get("image"))
    if found is None:
        raise machineclasses.unknown_image(wanted, architecture)
    return {"name": wanted.name, "version": wanted.version, "image": found, "architecture": architecture}


def hash_inputs(pool: WorkerPool, site: Site, zone: str = "") -> Inputs:
    """GCP-W14. The old form of the hash knows no data volumes."""
    config, found = machineclasses.worker_config(WorkerConfig, pool), dict[str, str]()
    for volume in machineclasses.by_name(pool.data_volumes):
        found |= machineclasses.inputs(
            f"dataVolumes[{volume.name}]",
            name=volume.name,
            size=volume.size,
            type=volume.type,
            encrypted=volume.encrypted or None,
        )
    for one in sorted(config.data_volumes, key=lambda one: one.name):
        found |= machineclasses.inputs(
            f"providerConfig.dataVolumes[{one.name}]",
            name=one.name,
            sourceImage=one.source_image,
            provisionedIops=one.provisioned_iops,
            provisionedThroughput=one.provisioned_throughput,
        )
    return Inputs({}, found | _config_inputs(config))


def _config_inputs(config: WorkerConfig) -> dict[str, str]:
    found, path = (
        machineclasses.inputs("providerConfig", minCpuPlatform=config.min_cpu_platform),
        "providerConfig",
    )
    if (gpu := config.gpu) is not None:
        found |= machineclasses.inputs(f"{path}.gpu", acceleratorType=gpu.accelerator_type, count=gpu.count)
    if (account := config.service_account) is not None:
        found |= machineclasses.inputs(f"{path}.serviceAccount", email=account.email)
        scopes = sorted(account.scopes)
        found |= {f"{path}.serviceAccount.scopes[{i}]": scope for i, scope in enumerate(scopes)}
    if (volume := config.volume) is not None:
        key = volume.encryption or Encryption()
        found |= machineclasses.inputs(
            f"{path}.volume.encryption",
            kmsKeyName=key.kms_key_name,
            kmsKeyServiceAccount=key.kms_key_service_account,
        )
        found |= machineclasses.inputs(f"{path}.volume", interface=volume.interface)
    return found


def _provider_spec(pool: WorkerPool, config: WorkerConfig, site: Site, image: str) -> dict[str, Any]:
    """All but the zone and how machines move."""
    subnets = mapping(site.infrastructure.get("networks")).get("subnets")
    interface = {
        "subnetwork": machineclasses.for_nodes(subnets, "subnet")["name"],
        "disableExternalIP": True,
    }
    shoot, labels = _shoot_name(site), _labels(pool, site)
    cluster = f"kubernetes-io-cluster-{site.namespace}"
    spec: dict[str, Any] = {
        "region": site.region,
        "canIpForward": True,
        "deletionProtection": False,
        "description": f"Machine of Shoot {shoot}",
        "disks": _disks(pool, config, image, labels),
        "labels": labels,
        "machineType": pool.machine_type,
        "metadata": [{"key": "block-project-ssh-keys", "value": "TRUE"}],
        "networkInterfaces": [interface],
        "serviceAccounts": _service_accounts(config, site),
        "tags": [site.namespace, cluster, "kubernetes-io-role-node"],
    }
    if (gpu := config.gpu) is not None:
        spec["gpu"] = {"acceleratorType": gpu.accelerator_type, "count": gpu.count}
    if config.min_cpu_platform is not None:
        spec["minCpuPlatform"] = config.min_cpu_platform
    return spec


def _shoot_name(site: Site) -> str:
    return str(mapping(site.shoot.get("metadata")).get("name", ""))


def _labels(pool: WorkerPool, site: Site) -> dict[str, str]:
    """Of a machine and its disks. The CSI driver puts the second on the disks that it makes."""
    labels = {"name": _sanitized(_shoot_name(site)), "k8s-cluster-name": _sanitized(site.namespace)}
    for name, value in (pool.labels or {}).items():
        # Only names have to begin with a letter.
        if key := _ILLEGAL_IN_LABELS.sub("_", name.lower()).lstrip("0123456789_")[:_LONGEST_LABEL]:
            labels[key] = _sanitized(value)
    return labels


def _sanitized(text: str) -> str:
    return _ILLEGAL_IN_LABELS.sub("_", text.lower())[:_LONGEST_LABEL]


def _service_accounts(config: WorkerConfig, site: Site) -> list[dict[str, Any]]:
    if (account := config.service_account) is not None:
        return [{"email": account.email, "scopes": sorted(account.scopes)}]
    email = site.infrastructure.get("serviceAccountEmail")
    return [{"email": email, "scopes": [_COMPUTE]}] if email else []


def _disks(
    pool: WorkerPool, config: WorkerConfig, image: str, labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The boot disk, if the pool has a volume, and the data disks in their order."""
    disks = []
    if pool.volume is not None:
        disks.append({"boot": True, "image": image, **_disk(pool.volume, config, labels)})
    for volume in pool.data_volumes or []:
        own = next((one for one in config.data_volumes if one.name == volume.name), DataVolume())
        disk = {"boot": False, **machineclasses.given(image=own.source_image)}
        if volume.type in worker.WITH_IOPS:
            disk |= machineclasses.given(provisionedIops=own.provisioned_iops)
        if volume.type in worker.WITH_THROUGHPUT:
            disk |= machineclasses.given(provisionedThroughput=own.provisioned_throughput)
        disks.append({**disk, **_disk(volume, config, labels)})
    return disks


def _disk(volume: Volume, config: WorkerConfig, labels: Mapping[str, str]) -> dict[str, Any]:
    disk: dict[str, Any] = {"autoDelete": True, "sizeGb": gigabytes(volume.size), "labels": dict(labels)}
    disk |= machineclasses.given(type=volume.type)
    if config.volume is None:
        return disk
    if (key := config.volume.encryption) is not None:
        disk["encryption"] = machineclasses.given(
            kmsKeyName=key.kms_key_name, kmsKeyServiceAccount=key.kms_key_service_account
        )
    if volume.type == worker.SCRATCH:
        disk |= machineclasses.given(interface=config.volume.interface)
    return disk


def instance(spec: Mapping[str, Any], template: Mapping[str, Any], machine: Machine) -> Instance:
    """ALL-Z7."""
    zone, project = text(spec, "zone"), machine.credentials.get("project", "")
    boot = next((one for one in mappings(spec.get("disks")) if one.get("boot") is True), {})
    return Instance(
        provider_id=f"gce:///{project}/{zone}/{machine.name}",
        image=text(boot, "image"),
        type=text(spec, "machineType"),
        region=text(spec, "region"),
        zone=zone,
    )


MACHINES = Machines(
    provider="GCP",
    groups=groups,
    used_image=used_image,
    instance=instance,
    unknown_image="googleapi: Error 404: The resource '{image}' was not found, notFound",
)
