"""Extensions, a pool per type: a ManagedResource, whose events requeue them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bus.views import View
from windowbox.kinds import Served
from windowbox.models.objects import Object
from windowbox.models.refs import EXTENSIONS, NETWORK_POLICIES, ObjectRef
from workers.core.lifecycle.actuators import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.statuses import Descriptions, OperationTexts
from workers.core.owned import managedresources
from workers.core.owned.managedresources import Bundle
from workers.core.owned.manifests import Manifest
from workers.core.owned.ownerindex import NamespaceKey
from workers.core.owned.targets import TargetClusters
from workers.core.serving import Common, Serving

SEED, SHOOT, AFTER_WORKER = "local-ext-seed", "local-ext-shoot", "local-ext-shoot-after-worker"

_SYSTEM = "kube-system"
_IMAGE = "europe-docker.pkg.dev/gardener-project/releases/3rd/alpine:3.19.1"


def bundle(type_: str, namespace: str) -> Bundle:
    """The ManagedResource of an Extension in `namespace`."""
    match type_:
        case "local-ext-seed":
            return managedresources.for_seed(type_, namespace, [_service_account(type_, namespace)])
        case "local-ext-shoot":
            return managedresources.for_shoot(type_, namespace, [_service_account(type_, _SYSTEM)])
        case _:
            return managedresources.for_shoot(type_, namespace, [_deployment(type_)])


def labels(type_: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": type_}


def finalizer(type_: str) -> str:
    return f"extensions.gardener.cloud/{type_}"


def leftover(namespace: str) -> Manifest:
    """A NetworkPolicy that selects no Pod, and whose finalizer blocks its deletion."""
    return {
        "apiVersion": f"{NETWORK_POLICIES.group}/{NETWORK_POLICIES.version}",
        "kind": NETWORK_POLICIES.kind,
        "metadata": {
            "generateName": "test-netpol-",
            "namespace": namespace,
            "labels": labels(SHOOT),
            "finalizers": [finalizer(SHOOT)],
        },
        # An empty selector would cut off all Pods of the control plane.
        "spec": {"podSelector": {"matchLabels": labels(SHOOT)}},
    }


def _service_account(name: str, namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": labels(name)},
        "automountServiceAccountToken": False,
    }


def _deployment(name: str) -> Manifest:
    container = {"name": name, "image": _IMAGE, "command": ["/bin/sh", "-c", "sleep 3600"]}
    pod = {
        "metadata": {"labels": labels(name)},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": _SYSTEM, "labels": labels(name)},
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": labels(name)},
            "template": pod,
        },
    }


_HOUR = 3600.0


DESCRIPTIONS = Descriptions(
    reconcile=OperationTexts(
        "Reconciling the Extension",
        "Successfully reconciled Extension",
        "Error reconciling Extension",
    ),
    delete=OperationTexts(
        "Deleting the Extension",
        "Successfully deleted the Extension",
        "Error deleting the Extension",
    ),
    migrate=OperationTexts(
        "Migrate Extension resource.",
        "Successfully migrated Extension resource",
        "Error migrating Extension resource",
    ),
    restore=OperationTexts(
        "Restoring Extension resource",
        "Successfully restored Extension resource",
        "Unable to restore Extension resource",
    ),
)


def _kind(type_: str, *classes: str, shoot: Need = Need.OPTIONAL) -> Kind:
    return Kind(
        resource=EXTENSIONS,
        pool=type_,
        finalizer=finalizer(type_),
        descriptions=DESCRIPTIONS,
        classes=frozenset(classes),
        deadline=180.0,
        types=frozenset({type_}),
        shoot=shoot,
        resync=_HOUR,
    )


KINDS = {
    kind.pool: kind
    for kind in (
        _kind(SEED, "garden", "seed", "shoot"),
        _kind(SHOOT, "garden", "shoot"),
        _kind(AFTER_WORKER, "shoot", shoot=Need.REQUIRED),
    )
}
"""By type."""


@dataclass
class _ManagedResourceActuator(Actuator):
    """Shared by all types."""

    targets: TargetClusters
    type: str

    def bundle(self, run: Run) -> Bundle:
        return bundle(self.type, run.ref.namespace)

    async def delete(self, run: Run) -> None:
        await self._remove(run)

    async def migrate(self, run: Run) -> None:
        """Remove the ManagedResource; objects in the Shoot stay."""
        await self._remove(run, keep=True)

    async def _remove(self, run: Run, *, keep: bool = False) -> None:
        bundle, target = self.bundle(run), self.targets.own_cluster(run)
        await managedresources.remove(target, bundle.namespace, bundle.name, bundle.secret_name, keep=keep)


class SeedActuator(_ManagedResourceActuator):
    """Objects in the seed. A migration removes them: the next seed creates its own."""

    async def reconcile(self, run: Run) -> Status:
        await managedresources.ensure_healthy(self.targets.own_cluster(run), self.bundle(run))
        return {}

    async def migrate(self, run: Run) -> None:
        await self._remove(run)


class ShootActuator(_ManagedResourceActuator):
    """Objects in the Shoot, which a migration keeps. Their health is not awaited."""

    async def reconcile(self, run: Run) -> Status:
        target = self.targets.own_cluster(run)
        await managedresources.ensure(target, self.bundle(run))
        if run.shoot and run.shoot.test_force_delete and not run.drift:
            for _ in range(2):
                await target.create(NETWORK_POLICIES, leftover(run.ref.namespace))
        return {}

    async def force_delete(self, run: Run) -> None:
        """Remove the finalizers of a test's leftovers. The client removes the ManagedResource itself."""
        target = self.targets.own_cluster(run)
        names = await target.names_labelled(NETWORK_POLICIES, run.ref.namespace, labels(self.type))
        for name in names:
            patch = {"metadata": {"finalizers": None}}
            await target.merge(NETWORK_POLICIES, run.ref.namespace, name, patch)
            await target.remove(NETWORK_POLICIES, run.ref.namespace, name)


class AfterWorkerActuator(_ManagedResourceActuator):
    """Objects that need machines: a hibernated Shoot has none, so nothing is awaited."""

    async def reconcile(self, run: Run) -> Status:
        target, bundle = self.targets.own_cluster(run), self.bundle(run)
        if run.shoot and run.shoot.hibernation_enabled:
            await managedresources.ensure(target, bundle)
        else:
            await managedresources.ensure_healthy(target, bundle)
        return {}


_ACTUATORS: dict[str, Callable[[TargetClusters, str], Actuator]] = {
    SEED: SeedActuator,
    SHOOT: ShootActuator,
    AFTER_WORKER: AfterWorkerActuator,
}


def serving(common: Common, row: Served) -> Serving:
    def extract(ref: ObjectRef, extension: Object) -> NamespaceKey | None:
        return NamespaceKey(ref.cluster, ref.namespace) if extension.spec.get("type") == row.type else None

    def owners(ref: ObjectRef) -> list[ObjectRef]:
        # The type is the name of the ManagedResource. An Extension may have any name.
        return owner_index.refs(NamespaceKey(ref.cluster, ref.namespace)) if ref.name == row.type else []

    owner_index: View[NamespaceKey] = View(common.bus, EXTENSIONS.id, extract, index=lambda home: home)
    return Serving(
        KINDS[row.type],
        _ACTUATORS[row.type](common.targets, row.type),
        owners=owners,
        known=owner_index.complete.wait,
        tasks={"owner index": owner_index.run},
    )
