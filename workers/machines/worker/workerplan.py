"""The plan of a Worker: its checked spec, a group of machines per zone of each pool, and their manifests.

Pure functions.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clouds import table
from clouds.frame import machineclasses, pools
from clouds.frame.pools import Group
from windowbox.errors import Malformed
from windowbox.models import machinekeys as keys
from windowbox.models.gardener import cloudprofile
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.gardener.worker import ClusterAutoscaler, WorkerPool, WorkerSpec
from windowbox.models.machines import StrategyType
from windowbox.models.objects import Object, from_base64, mapping, mappings
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS, SECRETS
from workers.core.lifecycle import actuators
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.core.owned.manifests import Manifest, manifest
from workers.machines.facts import number
from workers.machines.worker import localmachines

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
    provider: str
    """Of its MachineClasses."""
    credentials: Mapping[str, str]
    """The Secret with the kubeconfig of the provider cluster, or with credentials of the cloud."""


@dataclass(frozen=True)
class Plan:
    """The groups that a Worker asks for."""

    site: Site
    groups: Sequence[Group]
    classes: Mapping[str, Manifest]
    """The MachineClasses by name."""
    provider_status: Mapping[str, Any]
    """`status.providerStatus`, as a merge patch: the images in use, and what pools as a whole have."""
    hibernated: bool


def plan(
    worker: Object,
    shoot: ShootFacts,
    cluster: Mapping[str, Any],
    *,
    with_resources: bool = False,
    credentials: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for a Worker and the spec of its Cluster.

    `credentials` are what classes of a cloud may contain of its Secret; None for type local.
    Raises Malformed, with field, value and remedy, if no machines can be made of the spec.
    """
    profile = cloudprofile.profile(cluster)
    spec = checked(worker, profile)
    at = pools.Site(
        namespace=shoot.technical_id,
        region=spec.region,
        infrastructure=spec.infrastructure_provider_status or {},
        shoot=mapping(cluster.get("shoot")),
        profile=mapping(cluster.get("cloudProfile")),
        used_images=mappings(mapping(worker.status.get("providerStatus")).get("machineImages")),
        ssh_public_key=_decoded(spec.ssh_public_key),
        credentials=credentials or {},
    )
    if credentials is None:
        families = shoot.ip_families
        found = localmachines.plan(worker, spec, profile, at, families, with_resources=with_resources)
    else:
        cloud = table.cloud(spec.type)
        assert cloud.machines
        found = machineclasses.plan(cloud.type, cloud.machines, spec.pools, at)
    in_place = {
        pool.name: pools.in_place_hash(pool, at.shoot)
        for pool in spec.pools
        if pool.update_strategy in pools.IN_PLACE
    }
    groups = [replace(group, in_place_hash=in_place.get(group.pool.name, "")) for group in found.groups]
    _check_names(groups)
    secret = spec.secret_ref
    site = Site(
        namespace=worker.namespace,
        worker=worker.name,
        provider=found.provider,
        credentials={"name": secret.name or "", "namespace": secret.namespace or worker.namespace},
    )
    classes = {group.class_name: machine_class(group, site) for group in groups}
    return Plan(site, groups, classes, found.provider_status, shoot.hibernation_enabled)


def _check_names(groups: Sequence[Group]) -> None:
    times = Counter(group.name for group in groups)
    for group in groups:
        where = f"of pool {group.pool.name!r} in spec.pools"
        if len(group.name) > LONGEST_NAME:
            raise Malformed(
                f"name {where}: the name {group.name} of its MachineDeployment is "
                f"longer than {LONGEST_NAME} characters; shorten the name of the pool"
            )
        if not _NAME.fullmatch(group.name):
            raise Malformed(
                f"zones {where}: {group.zone!r:.80} cannot be a part of names: "
                "use lower-case letters, digits and dashes"
            )
        if times[group.name] > 1:
            raise Malformed(
                f"zones {where}: {times[group.name]} MachineDeployments would have the name {group.name}: "
                "name each zone once, or rename the pool"
            )


def _decoded(key: str | None) -> str:
    try:
        return from_base64(key or "").decode()
    except ValueError as error:
        raise Malformed("spec.sshPublicKey is not base64 of a text: encode the public key") from error


def checked(worker: Object, profile: CloudProfileSpec) -> WorkerSpec:
    """The spec; Malformed if a limit is exceeded, a name is repeated, or a pool is not valid."""
    spec = actuators.parsed_spec(WorkerSpec, worker)
    if len(spec.pools) > MOST_POOLS:
        raise Malformed(f"spec.pools has {len(spec.pools)} entries: there may be {MOST_POOLS}, remove some")
    if not spec.secret_ref.name:
        raise Malformed("spec.secretRef.name is not set: name the Secret with the provider's credentials")
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


def _check_pool(pool: WorkerPool, machine_types: set[str]) -> None:
    where = f"of pool {pool.name!r:.80} in spec.pools"
    if not _NAME.fullmatch(pool.name):
        raise Malformed(f"name {where}: use lower-case letters, digits and dashes")
    if pool.machine_type not in machine_types:
        raise Malformed(
            f"machineType {where} is {pool.machine_type!r:.80}, which is not among spec.machineTypes of the "
            "CloudProfile: correct it, or add the type"
        )
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


_MIN_READY_SECONDS = 500
_AUTO_PRESERVE = "autoPreserveFailedMachineMax"
_TEMPLATE_FIELDS = {
    "machine_drain_timeout": "drainTimeout",
    "machine_health_timeout": "healthTimeout",
    "machine_creation_timeout": "creationTimeout",
    "in_place_update_timeout": "inPlaceUpdateTimeout",
    "machine_preserve_timeout": "machinePreserveTimeout",
    "disable_health_timeout": "disableHealthTimeout",
    "max_evict_retries": "maxEvictRetries",
}


def secret(group: Group, site: Site, user_data: bytes) -> Manifest:
    """The Secret with the script that a machine executes when it starts for the first time."""
    data = {"userData": base64.b64encode(user_data).decode()}
    labels = {keys.PURPOSE: keys.CLASS_SECRET}
    return manifest(SECRETS, group.class_name, site.namespace, labels=labels, type="Opaque", data=data)


def machine_class(group: Group, site: Site) -> Manifest:
    made = manifest(
        MACHINE_CLASSES,
        group.class_name,
        site.namespace,
        labels=group.class_labels,
        provider=site.provider,
        secretRef={"name": group.class_name, "namespace": site.namespace},
        credentialsSecretRef=dict(site.credentials),
        providerSpec=dict(group.provider_spec),
    )
    return made if group.node_template is None else made | {"nodeTemplate": dict(group.node_template)}


def deployment(group: Group, site: Site, replicas: int) -> Manifest:
    """The MachineDeployment as it is created."""
    annotations = {name: value for name, value in _annotations(group.pool).items() if value is not None}
    labels, spec = {keys.POOL: group.pool.name}, _spec(group, site, replicas)
    body = manifest(MACHINE_DEPLOYMENTS, group.name, site.namespace, labels=labels, spec=spec)
    if annotations:
        body["metadata"]["annotations"] = annotations
    return body


def deployment_patch(found: Object, group: Group, site: Site, replicas: int) -> dict[str, Any]:
    """The merge patch from `found` to the wanted MachineDeployment; empty if they match.

    Fields, labels and annotations of other clients stay.
    """
    spec = _spec(group, site, replicas)
    # Other clients own other fields of the spec, such as `paused`.
    mine = {name: value for name, value in found.spec.items() if name in {*spec, _AUTO_PRESERVE}}
    # Annotations of the template belong to other clients.
    if annotations := mapping(mapping(mine.get("template")).get("metadata")).get("annotations"):
        spec["template"]["metadata"]["annotations"] = annotations
    labels = {keys.POOL: group.pool.name}
    annotated = _annotations(group.pool)
    head = {
        "labels": {name: value for name, value in labels.items() if found.labels.get(name) != value},
        "annotations": {k: v for k, v in annotated.items() if found.annotations.get(k) != v},
    }
    head = {name: change for name, change in head.items() if change}
    changes = {"metadata": head, "spec": difference(mine, spec)}
    return {name: change for name, change in changes.items() if change}


def replicas(group: Group, found: Object | None, *, hibernated: bool, scaled: bool, awake: bool) -> int:
    """How many machines a group is to have.

    `scaled`: the cluster autoscaler chooses, within its limits, for some pool of the Worker. `awake`: no
    MachineDeployment had machines, and now they are to have them.
    """
    if hibernated:
        return 0
    if not scaled or found is None:
        return group.minimum
    # The autoscaler writes the replicas: they stay, within the limits of the pool.
    current = number(found.spec.get("replicas"))
    if awake and current == 0:
        return group.minimum
    return min(max(current, group.minimum), group.maximum)


def _spec(group: Group, site: Site, replicas: int) -> dict[str, Any]:
    pool, settings = group.pool, group.pool.machine_controller_manager
    labels = {keys.DEPLOYMENT: group.name}
    if group.in_place:  # Gardener maps Machines to their Worker by this label
        labels[keys.WORKER] = site.worker
    of_nodes = {"labels": {**(pool.labels or {}), **group.labels}, "annotations": pool.annotations}
    taints = [taint.model_dump(by_alias=True, exclude_none=True, mode="json") for taint in pool.taints or []]
    machine: dict[str, Any] = {
        "class": {"kind": MACHINE_CLASSES.kind, "name": group.class_name},
        "nodeTemplate": {
            "metadata": {name: dict(value) for name, value in of_nodes.items() if value},
            "spec": {"taints": taints} if taints else {},
        },
    }
    if settings is not None:
        given = {field: getattr(settings, name) for name, field in _TEMPLATE_FIELDS.items()}
        if settings.node_conditions:
            given["nodeConditions"] = ",".join(settings.node_conditions)
        machine |= {field: value for field, value in given.items() if value is not None}
    limits = {"maxSurge": group.max_surge, "maxUnavailable": group.max_unavailable}
    strategy: dict[str, Any] = {"type": str(StrategyType.ROLLING_UPDATE), "rollingUpdate": limits}
    if group.in_place:
        in_place = {**limits, "orchestrationType": "Manual" if group.manual else "Auto"}
        strategy = {"type": str(StrategyType.IN_PLACE_UPDATE), "inPlaceUpdate": in_place}
    spec = {
        "replicas": replicas,
        "minReadySeconds": _MIN_READY_SECONDS,
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": {keys.DEPLOYMENT: group.name}},
        "strategy": strategy,
        "template": {"metadata": {"labels": labels}, "spec": machine},
    }
    return spec | ({_AUTO_PRESERVE: group.preserved} if group.preserved else {})


def _annotations(pool: WorkerPool) -> dict[str, str | None]:
    """The settings of the cluster autoscaler for a pool; None for its defaults."""
    settings = pool.cluster_autoscaler or ClusterAutoscaler()
    values = {
        "scale-down-utilization-threshold": settings.scale_down_utilization_threshold,
        "scale-down-gpu-utilization-threshold": settings.scale_down_gpu_utilization_threshold,
        "scale-down-unneeded-time": settings.scale_down_unneeded_time,
        "scale-down-unready-time": settings.scale_down_unready_time,
        "max-node-provision-time": settings.max_node_provision_time,
    }
    return {f"autoscaler.gardener.cloud/{name}": value for name, value in values.items()}


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `found` equal to `wanted`; empty if it is."""
    # A merge patch merges mappings: unwanted keys have to be set to null.
    patch: dict[str, Any] = {name: None for name in found if name not in wanted}
    for name, value in wanted.items():
        old = found.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := difference(old, value):
                patch[name] = inner
        elif name not in found or old != value:
            patch[name] = value
    return patch
