"""The plan of a Worker: its checked spec, a group of machines per zone of each pool, and their manifests.

Pure functions.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pydantic import ValidationError

from windowbox.errors import Malformed
from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant
from windowbox.models.gardener import capabilities, cloudprofile
from windowbox.models.gardener.capabilities import Known
from windowbox.models.gardener.cloudconfig import explained
from windowbox.models.gardener.cloudprofile import Capability, CloudProfileSpec, Version
from windowbox.models.gardener.worker import (
    ClusterAutoscaler,
    KubeletConfig,
    ProviderStatus,
    UsedImage,
    WorkerPool,
    WorkerSpec,
)
from windowbox.models.machines import StrategyType
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS, SECRETS
from workers.core.lifecycle import actuators
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.core.owned import ownerindex
from workers.core.owned.manifests import Manifest, manifest
from workers.machines.facts import number

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
        return self.pool.update_strategy in IN_PLACE

    @property
    def manual(self) -> bool:
        """Whether a person chooses the nodes that are updated in place."""
        return self.pool.update_strategy == "ManualInPlaceUpdate"


@dataclass(frozen=True)
class Plan:
    """The groups that a Worker asks for."""

    site: Site
    groups: Sequence[Group]
    classes: Mapping[str, Manifest]
    """The MachineClasses by name."""
    images: Mapping[str, Any]
    """The images in use, as `status.providerStatus` lists them."""
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
        if pool.update_strategy in IN_PLACE:
            in_place = in_place_hash(pool, cluster.get("shoot") or {})
        suffix, image = class_hash(pool, in_place), used_image(pool, profile, worker)
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
    classes = {group.class_name: machine_class(group, site) for group in groups}
    images = provider_status((group.image for group in groups), profile)
    return Plan(site, groups, classes, images, shoot.hibernation_enabled)


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


IN_PLACE = ("AutoInPlaceUpdate", "ManualInPlaceUpdate")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(\.\d+)?([-+][0-9A-Za-z.+-]+)?")


def combined(parts: Iterable[str]) -> str:
    """The hash of several texts, in their order."""
    digests = (hashlib.sha256(part.encode()).hexdigest() for part in parts)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def class_hash(pool: WorkerPool, in_place: str = "") -> str:
    """The suffix of the names of a pool's MachineClasses; `in_place` is its hash for in-place updates."""
    if not pool.node_agent_secret_name:
        raise Malformed(
            f'missing node-agent secret name for worker pool "{pool.name}": '
            f"set nodeAgentSecretName of pool {pool.name!r} in spec.pools"
        )
    # gardenlet hashes version, machine type, image and container runtime into the name of that Secret.
    return combined([pool.node_agent_secret_name, *([in_place] if in_place else [])])[:5]


def in_place_hash(pool: WorkerPool, shoot: Mapping[str, Any]) -> str:
    """The hash of everything that in-place updates bring to nodes. `shoot` is that of the Cluster."""
    of_shoot = mapping(mapping(shoot.get("spec")).get("kubernetes")).get("version")
    version = pool.kubernetes_version or str(of_shoot or "")
    found = _VERSION.fullmatch(version)
    if not found:
        raise Malformed(
            f"failed to parse kubernetes version {version!r:.80} of worker pool {pool.name!r}: "
            "set kubernetesVersion of the pool in spec.pools to a version such as 1.35.4"
        )
    parts = [f"{int(found[1])}.{int(found[2])}", pool.machine_image.version if pool.machine_image else ""]
    rotations = mapping(mapping(mapping(shoot.get("status")).get("credentials")).get("rotation"))
    for credential in ("certificateAuthorities", "serviceAccountKey"):
        rotation = mapping(rotations.get(credential))
        at = rotation.get("lastInitiationTime")
        # A roll-out that is pending for this pool has a time of its own, which comes first.
        pending = rotation.get("pendingWorkersRollouts")
        for rollout in pending if isinstance(pending, list) else ():
            if mapping(rollout).get("name") == pool.name:
                at = mapping(rollout).get("lastInitiationTime")
                break
        if moment := instant(at):  # as Go prints a time
            parts.append(moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC"))
    return combined([*parts, *kubelet_parts(pool.kubelet_config)])[:16]


def kubelet_parts(config: KubeletConfig | None) -> list[str]:
    """The kubelet settings whose change needs an update, spelled as Gardener spells them."""
    if config is None:
        return []
    parts = []
    if (reserved := config.kube_reserved) is not None:
        values = (reserved.cpu, reserved.memory, reserved.pid, reserved.ephemeral_storage)
        parts.append("-".join("<nil>" if value is None else str(value) for value in values))
    if (hard := config.eviction_hard) is not None:
        thresholds = (
            hard.image_fs_available,
            hard.image_fs_inodes_free,
            hard.memory_available,
            hard.node_fs_available,
            hard.node_fs_inodes_free,
        )
        parts.append("-".join(value or "" for value in thresholds))
    if config.cpu_manager_policy is not None:
        parts.append(config.cpu_manager_policy)
    return parts


_GROUP = "local.provider.extensions.gardener.cloud/v1alpha1"


def used_image(pool: WorkerPool, profile: CloudProfileSpec, worker: Object) -> UsedImage:
    """The image of a pool. One that the CloudProfile has lost is taken from the Worker's status."""
    definitions = profile.machine_capabilities or []
    machine = next(one for one in profile.machine_types or [] if one.name == pool.machine_type)
    able = capabilities.defaulted(machine.capabilities, definitions)
    asked = pool.machine_image
    assert asked is not None  # the plan has checked it
    reason = f"spec.providerConfig of the CloudProfile has no image {asked.name!r} {asked.version!r}"
    listed = cloudprofile.config(profile).machine_images if profile.provider_config is not None else []
    versions = (one for known in listed if known.name == asked.name for one in known.versions or [])
    if entry := next((one for one in versions if one.version == asked.version), None):
        try:
            return _of_entry(entry, asked.name, able, definitions)
        except Malformed as error:
            reason = str(error)
    reported, before = worker.status.get("providerStatus"), list[UsedImage]()
    if isinstance(reported, Mapping):
        try:
            before = ProviderStatus.model_validate(reported).machine_images or []
        except ValidationError as error:
            what = f"could not decode worker status of worker '{worker.namespace}/{worker.name}'"
            reasons = "; ".join(map(explained, error.errors()))
            raise Malformed(f"{what}: status.providerStatus.{reasons}") from error
    for used in before:
        if (used.name, used.version) == (asked.name, asked.version) and _fits(used, able, definitions):
            return used
    raise Malformed(
        f"could not find machine image for {asked.name}/{asked.version} neither in cloud profile nor in "
        f"worker status: {reason}; add it to machineImages there, or correct machineImage of pool "
        f"{pool.name!r}"
    )


def provider_status(images: Iterable[UsedImage], profile: CloudProfileSpec) -> dict[str, Any]:
    """`status.providerStatus`: the images in use, each once."""
    definitions = profile.machine_capabilities or []
    kept: dict[tuple[Any, ...], UsedImage] = {}
    for one in images:
        known = capabilities.defaulted(one.capabilities, definitions)
        capable = tuple(sorted((name, tuple(sorted(values))) for name, values in known.items()))
        kept.setdefault((one.name, one.version, capable), one)
    listed = [one.model_dump(by_alias=True, exclude_none=True) for one in kept.values()]
    return {"apiVersion": _GROUP, "kind": "WorkerStatus", "machineImages": listed}


def _of_entry(entry: Version, name: str, able: Known, definitions: Sequence[Capability]) -> UsedImage:
    """The image of the entry, or the one of its flavors that suits the machine best."""
    if not definitions:
        if not entry.image:
            raise Malformed(f"image {name!r} {entry.version!r} in machineImages has no container image")
        return UsedImage(name=name, version=entry.version, image=entry.image)
    flavors = [
        UsedImage(name=name, version=entry.version, image=flavor.image, capabilities=flavor.capabilities)
        for flavor in entry.capability_flavors or []
    ]
    fitting = [one for one in flavors if _fits(one, able, definitions)]
    if not fitting:
        raise Malformed("no compatible flavor found")
    # The CloudProfile lists capabilities, and the values of each, from the preferred to the last.
    for definition in definitions:
        for value in definition.values:
            if len(fitting) == 1:
                return fitting[0]
            preferred = [
                one
                for one in fitting
                if value in capabilities.defaulted(one.capabilities, definitions)[definition.name]
            ]
            fitting = preferred or fitting
    if len(fitting) > 1:
        raise Malformed(
            "could not determine a unique capability flavor; "
            "this is usually attributed to an invalid CloudProfile"
        )
    return fitting[0]


def _fits(image: UsedImage, able: Known, definitions: Sequence[Capability]) -> bool:
    known = capabilities.defaulted(image.capabilities, definitions)
    return not definitions or capabilities.fit(able, known)


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
