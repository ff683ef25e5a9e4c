"""The wanted objects of a Worker: a Secret, a MachineClass and a MachineDeployment per zone of each pool."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windowbox.errors import Malformed
from windowbox.models import machinekeys as keys
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.gardener.worker import UsedImage, WorkerPool, WorkerSpec
from windowbox.models.machines import StrategyType
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, SECRETS
from workers.core.lifecycle.shoots import ShootFacts
from workers.core.owned import ownerindex
from workers.core.owned.manifests import Manifest, manifest
from workers.machines.worker import hashes, images, specs, zones

PROVIDER = "local"
_ARCHITECTURE = "amd64"


@dataclass(frozen=True)
class Site:
    """Where the objects of a Worker are."""

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
    """How many failed machines are kept at most."""
    image: UsedImage
    in_place_hash: str = ""

    @property
    def strategy(self) -> dict[str, Any]:
        """How its machines are replaced."""
        limits = {"maxSurge": self.pool.max_surge, "maxUnavailable": self.pool.max_unavailable}
        match self.pool.update_strategy:
            case "AutoInPlaceUpdate" | "ManualInPlaceUpdate" as strategy:
                orchestration = "Auto" if strategy.startswith("Auto") else "Manual"
                in_place = {**limits, "orchestrationType": orchestration}
                return {"type": str(StrategyType.IN_PLACE_UPDATE), "inPlaceUpdate": in_place}
            case _:
                return {"type": str(StrategyType.ROLLING_UPDATE), "rollingUpdate": limits}

    @property
    def in_place(self) -> bool:
        return self.pool.update_strategy in hashes.IN_PLACE

    @property
    def manual(self) -> bool:
        """Whether a person chooses the nodes that are updated in place."""
        return self.pool.update_strategy == "ManualInPlaceUpdate"


def site(worker: Object, spec: WorkerSpec, shoot: ShootFacts, *, with_resources: bool) -> Site:
    secret = spec.secret_ref
    return Site(
        namespace=worker.namespace,
        worker=worker.name,
        technical_id=shoot.technical_id,
        ip_families=shoot.ip_families,
        credentials={"name": secret.name or "", "namespace": secret.namespace or worker.namespace},
        region=spec.region,
        with_resources=with_resources,
    )


def groups(
    worker: Object, spec: WorkerSpec, at: Site, profile: CloudProfileSpec, shoot: Mapping[str, Any]
) -> list[Group]:
    """The machines that a Worker asks for. `shoot` is that of the Cluster."""
    return [group for pool in spec.pools for group in _of_pool(pool, worker, at, profile, shoot)]


def _of_pool(
    pool: WorkerPool, worker: Object, at: Site, profile: CloudProfileSpec, shoot: Mapping[str, Any]
) -> Iterator[Group]:
    named = pool.zones or [at.region]
    in_place = hashes.in_place_hash(pool, shoot) if pool.update_strategy in hashes.IN_PLACE else ""
    suffix = hashes.class_hash(pool, in_place)
    image = images.found(pool, profile, worker)
    settings = pool.machine_controller_manager
    preserved = (settings.auto_preserve_failed_machine_max if settings else None) or 0
    for index, zone in enumerate(named):
        name = f"{at.technical_id}-{pool.name}-z{index + 1}"
        if len(name) > specs.LONGEST_NAME:
            raise Malformed(
                f"name of pool {pool.name!r} in spec.pools: the name {name} of its MachineDeployment is "
                f"longer than {specs.LONGEST_NAME} characters; shorten the name of the pool"
            )
        yield Group(
            pool=pool,
            zone=zone,
            name=name,
            class_name=f"{name}-{suffix}",
            minimum=zones.share(index, pool.minimum, len(named)),
            maximum=zones.share(index, pool.maximum, len(named)),
            preserved=zones.share(index, preserved, len(named)),
            image=image,
            in_place_hash=in_place,
        )


def secret(group: Group, at: Site, user_data: bytes) -> Manifest:
    """What a machine executes when it starts for the first time."""
    data = {"userData": base64.b64encode(user_data).decode()}
    labels = {keys.PURPOSE: keys.CLASS_SECRET}
    return manifest(SECRETS, group.class_name, at.namespace, labels=labels, type="Opaque", data=data)


def machine_class(group: Group, at: Site) -> Manifest:
    pool = group.pool
    assert pool.node_template is not None  # specs has checked it
    template: dict[str, Any] = {
        "capacity": dict(pool.node_template.capacity),
        "instanceType": pool.machine_type,
        "region": at.region,
        "zone": group.zone,
        "architecture": pool.architecture or _ARCHITECTURE,
    }
    if pool.node_template.virtual_capacity:
        template["virtualCapacity"] = dict(pool.node_template.virtual_capacity)
    return manifest(
        MACHINE_CLASSES,
        group.class_name,
        at.namespace,
        provider=PROVIDER,
        secretRef={"name": group.class_name, "namespace": at.namespace},
        credentialsSecretRef=dict(at.credentials),
        providerSpec=_provider_spec(group, at),
        nodeTemplate=template,
    )


def _provider_spec(group: Group, at: Site) -> dict[str, Any]:
    spec: dict[str, Any] = {"image": group.image.image}
    for family in at.ip_families:
        spec[f"ipPoolNameV{family.removeprefix('IPv')}"] = ownerindex.machine_ip_pool(at.technical_id, family)
    spec["namespace"] = ownerindex.infrastructure_namespace(at.technical_id)
    if at.with_resources:
        spec |= _of_machine_type(group)
    return spec


def _of_machine_type(group: Group) -> dict[str, Any]:
    """What machines of the pool's type have: nothing that Gardener's provider-local knows of."""
    pool = group.pool
    capacity = pool.node_template.capacity if pool.node_template else {}
    amounts = {name: str(capacity[name]) for name in ("cpu", "memory") if name in capacity}
    disks = [{"name": pool.volume.name or "root", "size": pool.volume.size}] if pool.volume else []
    disks += [{"name": disk.name, "size": disk.size} for disk in pool.data_volumes or []]
    return {"resources": {"requests": amounts, "limits": amounts}, "zone": group.zone, "volumes": disks}
