"""What a MachineDeployment of a Worker ought to be, beside what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.gardener.worker import ClusterAutoscaler, WorkerPool
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS
from workers.core.owned.manifests import Manifest, manifest
from workers.machines.worker.wanted import Group, Site

_MIN_READY_SECONDS = 500
_AUTOSCALER = "autoscaler.gardener.cloud"
_UNSCALED = ClusterAutoscaler()
_TEMPLATE_FIELDS = {
    "machine_drain_timeout": "drainTimeout",
    "machine_health_timeout": "healthTimeout",
    "machine_creation_timeout": "creationTimeout",
    "in_place_update_timeout": "inPlaceUpdateTimeout",
    "machine_preserve_timeout": "machinePreserveTimeout",
    "disable_health_timeout": "disableHealthTimeout",
    "max_evict_retries": "maxEvictRetries",
}


def deployment(group: Group, at: Site, replicas: int) -> Manifest:
    """The MachineDeployment as it is created."""
    annotations = {name: value for name, value in _annotations(group.pool).items() if value is not None}
    made = manifest(
        MACHINE_DEPLOYMENTS,
        group.name,
        at.namespace,
        labels={keys.POOL: group.pool.name},
        spec=_spec(group, at, replicas),
    )
    if annotations:
        made["metadata"]["annotations"] = annotations
    return made


def patch(found: Object, group: Group, at: Site, replicas: int) -> dict[str, Any]:
    """The merge patch that makes `found` what is wanted; empty if it is. What others have said stays."""
    spec = _spec(group, at, replicas)
    mine = {name: value for name, value in found.spec.items() if name in _OURS}
    template = mapping(mine.get("template"))
    if annotations := mapping(template.get("metadata")).get("annotations"):
        spec["template"]["metadata"]["annotations"] = annotations
    head = {
        "labels": difference({}, {keys.POOL: group.pool.name})
        if found.labels.get(keys.POOL) != group.pool.name
        else {},
        "annotations": {
            name: value
            for name, value in _annotations(group.pool).items()
            if found.annotations.get(name) != value
        },
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
    current = replicas_of(found)
    if awake and current == 0:
        return group.minimum
    return min(max(current, group.minimum), group.maximum)


def replicas_of(found: Object) -> int:
    """How many machines a MachineDeployment or MachineSet is to have."""
    wanted = found.spec.get("replicas")
    return wanted if isinstance(wanted, int) else 0


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `found` just `wanted`; empty if it is."""
    patch: dict[str, Any] = {name: None for name in found if name not in wanted}
    for name, value in wanted.items():
        old = found.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := difference(old, value):
                patch[name] = inner
        elif name not in found or old != value:
            patch[name] = value
    return patch


def _spec(group: Group, at: Site, replicas: int) -> dict[str, Any]:
    spec = {
        "replicas": replicas,
        "minReadySeconds": _MIN_READY_SECONDS,
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": {keys.DEPLOYMENT: group.name}},
        "strategy": group.strategy,
        "template": _template(group, at),
    }
    if group.preserved:
        spec["autoPreserveFailedMachineMax"] = group.preserved
    return spec


_OURS = frozenset(
    (
        "replicas",
        "minReadySeconds",
        "revisionHistoryLimit",
        "selector",
        "strategy",
        "template",
        "autoPreserveFailedMachineMax",
    )
)
"""The fields of the spec that belong to the Worker; others pause a deployment, for instance."""


def _template(group: Group, at: Site) -> dict[str, Any]:
    labels = {keys.DEPLOYMENT: group.name}
    if group.in_place:
        labels[keys.WORKER] = at.worker
    reference = {"kind": MACHINE_CLASSES.kind, "name": group.class_name}
    spec = {"class": reference, "nodeTemplate": _node_template(group.pool), **_configuration(group.pool)}
    return {"metadata": {"labels": labels}, "spec": spec}


def _node_template(pool: WorkerPool) -> dict[str, Any]:
    """What the nodes of a pool have."""
    said = {"labels": pool.labels, "annotations": pool.annotations}
    metadata = {name: dict(value) for name, value in said.items() if value}
    taints = [taint.model_dump(by_alias=True, exclude_none=True, mode="json") for taint in pool.taints or []]
    return {"metadata": metadata, "spec": {"taints": taints} if taints else {}}


def _configuration(pool: WorkerPool) -> dict[str, Any]:
    """What machines of a pool do in another way than all others."""
    settings = pool.machine_controller_manager
    if settings is None:
        return {}
    said = {field: getattr(settings, name) for name, field in _TEMPLATE_FIELDS.items()}
    if settings.node_conditions:
        said["nodeConditions"] = ",".join(settings.node_conditions)
    return {field: value for field, value in said.items() if value is not None}


def _annotations(pool: WorkerPool) -> dict[str, str | None]:
    """What the cluster autoscaler is told of a pool; None for what it is not told."""
    told = pool.cluster_autoscaler or _UNSCALED
    return {
        f"{_AUTOSCALER}/scale-down-utilization-threshold": told.scale_down_utilization_threshold,
        f"{_AUTOSCALER}/scale-down-gpu-utilization-threshold": told.scale_down_gpu_utilization_threshold,
        f"{_AUTOSCALER}/scale-down-unneeded-time": told.scale_down_unneeded_time,
        f"{_AUTOSCALER}/scale-down-unready-time": told.scale_down_unready_time,
        f"{_AUTOSCALER}/max-node-provision-time": told.max_node_provision_time,
    }
