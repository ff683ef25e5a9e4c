"""MachineClasses of type openstack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clouds.frame import inventory, machineclasses
from clouds.frame.machineclasses import Instance, Machine, Machines, text
from clouds.frame.pools import Group, Inputs, Site, class_hash, gigabytes
from clouds.openstack.api import CloudProfileConfig, WorkerConfig
from windowbox.errors import Malformed
from windowbox.models.gardener.worker import WorkerPool
from windowbox.models.objects import mapping

_ILLEGAL_IN_TAGS = re.compile(r"[^a-zA-Z0-9\-_:. ]")
_PRESERVE_HASH = "openstack.provider.extensions.gardener.cloud/worker-preserve-hash"
_WITHOUT_REGION = "amd64"
"""The architecture of images that are known by one name in all regions."""


def groups(pool: WorkerPool, site: Site, raw_config: str, image: Mapping[str, Any]) -> Iterator[Group]:
    """A group for each zone."""
    config, zones = machineclasses.worker_config(WorkerConfig, pool), pool.zones or []
    server_group = _server_group(pool, config, site)
    suffix = class_hash(pool, site, raw_config, hash_inputs(pool, site))
    template = config.node_template
    capacity = template.capacity if template is not None else machineclasses.capacity_of(pool)
    for i, zone in enumerate(zones):
        name = f"{site.namespace}-{pool.name}-z{i + 1}"
        drivers = ("cinder", "manila")
        spec = _provider_spec(pool, config, site, zone, image)
        spec |= machineclasses.given(serverGroupID=server_group)
        yield Group(
            pool,
            name,
            f"{name}-{suffix}",
            zone,
            i,
            len(zones),
            {"apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "kind": "MachineProviderConfig"}
            | {"spec": spec},
            {f"topology.{driver}.csi.openstack.org/zone": zone for driver in drivers},
            machineclasses.node_template(pool, site, zone, capacity),
        )


def used_image(pool: WorkerPool, site: Site) -> dict[str, Any]:
    """The image of a pool as the status of the Worker lists it (ALL-Z6). Malformed if there is none."""
    wanted, architecture = machineclasses.image_and_architecture(pool)
    head = {"name": wanted.name, "version": wanted.version, "architecture": architecture}
    config = machineclasses.profile_config(CloudProfileConfig, site)
    for version in machineclasses.versions(config.machine_images, wanted):
        for one in version.regions:
            if (one.name, one.architecture) == (site.region, architecture):
                return {**head, "id": one.id}
        if version.image and architecture == _WITHOUT_REGION:
            return {**head, "image": version.image}
    found = machineclasses.used_before(site.used_images, wanted, architecture, unnamed=architecture)
    if found is None:
        raise machineclasses.unknown_image(wanted, architecture, site.region)
    return {**found, "architecture": architecture}


def _server_group(pool: WorkerPool, config: WorkerConfig, site: Site) -> str | None:
    """The ID of the pool's server group, if it is to have one (OST-W1)."""
    if config.server_group is None or not config.server_group.policy:
        return None
    for one in site.dependencies:
        if one.get("poolName") == pool.name:
            return str(one["id"])
    raise Malformed(f"pool {pool.name!r:.80} has no serverGroupDependency: reconcile the Worker")


def hash_inputs(pool: WorkerPool, site: Site, zone: str = "") -> Inputs:
    """OST-W8."""
    config = machineclasses.worker_config(WorkerConfig, pool)
    found = machineclasses.inputs("providerConfig.serverGroup", policy=_server_group(pool, config, site))
    labels = ((f"{one.name}={one.value}", one) for one in config.machine_labels)
    for label, one in sorted(labels, key=lambda pair: pair[0]):
        if one.trigger_rolling_on_update:
            found[f"providerConfig.machineLabels[{one.name}]"] = label
    return Inputs(found, found, counts_config=_counts_config(site))


def _counts_config(site: Site) -> bool:
    """OST-W8: whether the WorkerConfig as it is spelled counts in the old form of the hash."""
    annotations = mapping(mapping(site.shoot.get("metadata")).get("annotations"))
    return str(annotations.get(_PRESERVE_HASH)).lower() == "true"


def _provider_spec(
    pool: WorkerPool, config: WorkerConfig, site: Site, zone: str, image: Mapping[str, Any]
) -> dict[str, Any]:
    networks = mapping(site.infrastructure.get("networks"))
    groups_ = site.infrastructure.get("securityGroups")
    own = {one.name: one.value for one in config.machine_labels}
    tags = {_ILLEGAL_IN_TAGS.sub("-", name): value for name, value in {**(pool.labels or {}), **own}.items()}
    spec: dict[str, Any] = {
        "region": site.region,
        "availabilityZone": zone,
        "flavorName": pool.machine_type,
        "keyName": machineclasses.needed(site.infrastructure, "node", "keyName"),
        "networkID": machineclasses.needed(site.infrastructure, "networks", "id"),
        "subnetID": machineclasses.for_nodes(networks.get("subnets"), "subnet")["id"],
        "podNetworkCIDRs": _pod_ranges(site),
        "securityGroups": [machineclasses.for_nodes(groups_, "security group")["name"]],
        "tags": tags | {f"kubernetes.io-cluster-{site.namespace}": "1", "kubernetes.io-role-node": "1"},
    }
    spec |= {"imageID": image["id"]} if image.get("id") else {"imageName": image.get("image")}
    if pool.volume is not None:
        if size := gigabytes(pool.volume.size):
            spec["rootDiskSize"] = size
        spec |= machineclasses.given(rootDiskType=pool.volume.type)
    return spec


def _pod_ranges(site: Site) -> list[str]:
    """That of the Shoot first, then others that its status has."""
    of_spec = mapping(mapping(site.shoot.get("spec")).get("networking")).get("pods")
    of_status = mapping(mapping(site.shoot.get("status")).get("networking")).get("pods") or []
    return list(dict.fromkeys([*([of_spec] if of_spec else []), *of_status]))


def dependency(pool: WorkerPool, site: Site) -> dict[str, Any] | None:
    """OST-W9: the server group of a pool that asks for one. Another policy needs another one."""
    config = machineclasses.worker_config(WorkerConfig, pool)
    if config.server_group is None or not config.server_group.policy:
        return None
    of_pool = (site.namespace, pool.name, config.server_group.policy)
    name = f"{site.namespace}-{pool.name}-{inventory.digest('server-group', *of_pool)[:10]}"
    return {"poolName": pool.name, "id": inventory.made_uuid("server-group", *of_pool), "name": name}


def instance(spec: Mapping[str, Any], template: Mapping[str, Any], machine: Machine) -> Instance:
    """ALL-Z7."""
    asked = mapping(spec.get("spec"))
    region, id_ = text(asked, "region"), inventory.made_uuid("server", machine.owner, machine.name)
    return Instance(
        provider_id=f"openstack:///{region}/{id_}",
        image=text(asked, "imageID") or text(asked, "imageName"),
        type=text(asked, "flavorName"),
        region=region,
        zone=text(asked, "availabilityZone"),
    )


MACHINES = Machines(
    provider="OpenStack",
    groups=groups,
    used_image=used_image,
    instance=instance,
    unknown_image="Resource not found: image {image}",
    dependency=dependency,
    dependencies="serverGroupDependencies",
)
