"""The objects of a group of machines: Secret, MachineClass, and MachineDeployment with its replicas. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.gardener.worker import ClusterAutoscaler, WorkerPool
from windowbox.models.machines import StrategyType
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS, SECRETS
from workers.core.owned import ownerindex
from workers.core.owned.manifests import Manifest, manifest
from workers.machines.facts import number
from workers.machines.worker.workergroups import Group, Site

PROVIDER = "local"
_ARCHITECTURE = "amd64"
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
    pool = group.pool
    assert pool.node_template is not None  # the plan has checked it
    capacity = pool.node_template.capacity
    template: dict[str, Any] = {
        "capacity": dict(capacity),
        "instanceType": pool.machine_type,
        "region": site.region,
        "zone": group.zone,
        "architecture": pool.architecture or _ARCHITECTURE,
    }
    if pool.node_template.virtual_capacity:
        template["virtualCapacity"] = dict(pool.node_template.virtual_capacity)
    spec: dict[str, Any] = {"image": group.image.image}
    for family in site.ip_families:
        version = family.removeprefix("IPv")
        spec[f"ipPoolNameV{version}"] = ownerindex.machine_ip_pool(site.technical_id, family)
    spec["namespace"] = ownerindex.infrastructure_namespace(site.technical_id)
    if site.with_resources:  # fields that Gardener's provider-local does not know
        amounts = {name: str(capacity[name]) for name in ("cpu", "memory") if name in capacity}
        disks = [{"name": pool.volume.name or "root", "size": pool.volume.size}] if pool.volume else []
        disks += [{"name": disk.name, "size": disk.size} for disk in pool.data_volumes or []]
        resources = {"requests": amounts, "limits": amounts}
        spec |= {"resources": resources, "zone": group.zone, "volumes": disks}
    return manifest(
        MACHINE_CLASSES,
        group.class_name,
        site.namespace,
        provider=PROVIDER,
        secretRef={"name": group.class_name, "namespace": site.namespace},
        credentialsSecretRef=dict(site.credentials),
        providerSpec=spec,
        nodeTemplate=template,
    )


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
    of_nodes = {"labels": pool.labels, "annotations": pool.annotations}
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
    limits = {"maxSurge": pool.max_surge, "maxUnavailable": pool.max_unavailable}
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
