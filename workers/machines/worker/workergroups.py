"""The plan of a Worker: its checked spec, divided into one group of machines per zone of each pool. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windowbox.errors import Malformed
from windowbox.models.gardener import cloudprofile
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.gardener.worker import UsedImage, WorkerPool, WorkerSpec
from windowbox.models.objects import Object
from workers.core.lifecycle import actuators
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.machines.worker import poolhashes, poolimages

MOST_POOLS = 100
MOST_ZONES = 32
MOST_GROUPS = 500
"""Zones of all pools."""
MOST_MACHINES = 10_000
LONGEST_NAME = 63
"""The name of a MachineDeployment is the value of a label of its machines."""
_STRATEGIES = ("", "AutoRollingUpdate", "AutoInPlaceUpdate", "ManualInPlaceUpdate")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PERCENT = re.compile(r"\d{1,3}%")


@dataclass(frozen=True)
class Site:
    """The facts that all groups of a Worker share."""

    namespace: str
    worker: str
    technical_id: str
    ip_families: tuple[str, ...]
    credentials: Mapping[str, str]
    """The Secret with the kubeconfig of the provider cluster."""
    region: str
    with_resources: bool
    """Whether machine Pods get the resources, zone and volumes of their machine type."""


@dataclass(frozen=True)
class Group:
    """The machines of one zone of a pool."""

    pool: WorkerPool
    zone: str
    name: str
    """Of its MachineDeployment."""
    class_name: str
    minimum: int
    maximum: int
    preserved: int
    """The most failed machines that are preserved automatically."""
    image: UsedImage
    in_place_hash: str = ""

    @property
    def in_place(self) -> bool:
        return self.pool.update_strategy in poolhashes.IN_PLACE

    @property
    def manual(self) -> bool:
        """Whether a person chooses the nodes that are updated in place."""
        return self.pool.update_strategy == "ManualInPlaceUpdate"


@dataclass(frozen=True)
class Plan:
    """The groups that a Worker asks for."""

    site: Site
    profile: CloudProfileSpec
    groups: Sequence[Group]
    hibernated: bool


def plan(worker: Object, shoot: ShootFacts, cluster: Mapping[str, Any], *, with_resources: bool) -> Plan:
    """The plan for a Worker and the spec of its Cluster.

    Raises Malformed, with field, value and remedy, if no machines can be made of the spec.
    """
    profile = cloudprofile.profile(cluster)
    spec = checked(worker, profile)
    secret = spec.secret_ref
    site = Site(
        namespace=worker.namespace,
        worker=worker.name,
        technical_id=shoot.technical_id,
        ip_families=shoot.ip_families,
        credentials={"name": secret.name or "", "namespace": secret.namespace or worker.namespace},
        region=spec.region,
        with_resources=with_resources,
    )
    groups: list[Group] = []
    for pool in spec.pools:
        in_place = ""
        if pool.update_strategy in poolhashes.IN_PLACE:
            in_place = poolhashes.in_place_hash(pool, cluster.get("shoot") or {})
        suffix, image = poolhashes.class_hash(pool, in_place), poolimages.image(pool, profile, worker)
        settings, zones = pool.machine_controller_manager, pool.zones or [site.region]
        preserved = (settings.auto_preserve_failed_machine_max if settings else None) or 0
        for index, zone in enumerate(zones):
            # Gardener's names follow the index of the zone, not its name: other zones rename the deployments.
            name = f"{site.technical_id}-{pool.name}-z{index + 1}"
            if len(name) > LONGEST_NAME:
                raise Malformed(
                    f"name of pool {pool.name!r} in spec.pools: the name {name} of its MachineDeployment is "
                    f"longer than {LONGEST_NAME} characters; shorten the name of the pool"
                )
            minimum, maximum, kept = (
                share(index, size, len(zones)) for size in (pool.minimum, pool.maximum, preserved)
            )
            class_name = f"{name}-{suffix}"
            groups.append(Group(pool, zone, name, class_name, minimum, maximum, kept, image, in_place))
    return Plan(site, profile, groups, shoot.hibernation_enabled)


def checked(worker: Object, profile: CloudProfileSpec) -> WorkerSpec:
    """The spec; Malformed if a limit is exceeded, a name is repeated, or a pool is not valid."""
    spec = actuators.parsed_spec(WorkerSpec, worker)
    if len(spec.pools) > MOST_POOLS:
        raise Malformed(f"spec.pools has {len(spec.pools)} entries: there may be {MOST_POOLS}, remove some")
    if not spec.secret_ref.name:
        raise Malformed("spec.secretRef.name is not set: name the Secret with the provider's kubeconfig")
    names = [pool.name for pool in spec.pools]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise Malformed(f"spec.pools has two pools of the name {repeated!r:.80}: rename one of them")
    if (zones := sum(len(pool.zones or [""]) for pool in spec.pools)) > MOST_GROUPS:
        raise Malformed(
            f"spec.pools have {zones} zones: there may be {MOST_GROUPS} of all pools, remove some"
        )
    known = {machine.name for machine in profile.machine_types or []}
    for pool in spec.pools:
        _check_pool(pool, known)
    if (least := sum(pool.minimum for pool in spec.pools)) > MOST_MACHINES:
        raise Malformed(f"minimum of all spec.pools is {least}: there may be {MOST_MACHINES}, lower some")
    return spec


def share(zone: int, size: int, zones: int) -> int:
    """The part of `size` for the zone with this index. The first zones get the remainder."""
    return size // zones + (1 if zone < size % zones else 0)


def _check_pool(pool: WorkerPool, machine_types: set[str]) -> None:
    where = f"of pool {pool.name!r:.80} in spec.pools"
    if not _NAME.fullmatch(pool.name):
        raise Malformed(f"name {where}: use lower-case letters, digits and dashes")
    if pool.machine_type not in machine_types:
        raise Malformed(
            f"machineType {where} is {pool.machine_type!r:.80}, which is not among spec.machineTypes of the "
            "CloudProfile: correct it, or add the type"
        )
    if pool.node_template is None:
        raise Malformed(f"nodeTemplate {where} is not set: give the capacity of its machines")
    if not 0 <= pool.minimum <= pool.maximum <= MOST_MACHINES:
        raise Malformed(
            f"minimum and maximum {where} are {pool.minimum} and {pool.maximum}: "
            f"choose 0 ≤ minimum ≤ maximum ≤ {MOST_MACHINES}"
        )
    zones = pool.zones or []
    if len(zones) > MOST_ZONES:
        raise Malformed(f"zones {where} has {len(zones)} entries: there may be {MOST_ZONES}, remove some")
    if (pool.update_strategy or "") not in _STRATEGIES:
        raise Malformed(
            f"updateStrategy {where} is {pool.update_strategy!r:.80}: "
            f"make it one of {', '.join(_STRATEGIES[1:])}"
        )
    for field, value in (("maxSurge", pool.max_surge), ("maxUnavailable", pool.max_unavailable)):
        if (value < 0) if isinstance(value, int) else not _PERCENT.fullmatch(value):
            raise Malformed(
                f"{field} {where} is {value!r:.80}: make it a number, or a percentage such as 25%"
            )
    if pool.machine_image is None:
        raise Malformed(f"machineImage {where} is not set: name an image and its version")
    if not pool.user_data_secret_ref.name or not pool.user_data_secret_ref.key:
        raise Malformed(
            f"userDataSecretRef {where} needs a name and a key: name the Secret with the user data"
        )
