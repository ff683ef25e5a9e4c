"""Hand objects to resource managers, each type in its own manner."""

from __future__ import annotations

from dataclasses import dataclass

from windowbox.models.refs import EXTENSIONS, NETWORK_POLICIES
from workers.core.lifecycle.kinds import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.statuses import Descriptions, OperationTexts
from workers.core.owned import managedresources
from workers.core.owned.managedresources import Bundle
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.kinds.extension import wanted

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
        finalizer=wanted.finalizer(type_),
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
        _kind(wanted.SEED, "garden", "seed", "shoot"),
        _kind(wanted.SHOOT, "garden", "shoot"),
        _kind(wanted.AFTER_WORKER, "shoot", shoot=Need.REQUIRED),
    )
}
"""By type."""


@dataclass
class _ManagedResourceActuator(Actuator):
    """What all types do alike."""

    targets: TargetClusters
    type: str

    def bundle(self, run: Run) -> Bundle:
        return wanted.bundle(self.type, run.ref.namespace)

    async def delete(self, run: Run) -> None:
        await self._remove(run)

    async def _remove(self, run: Run, *, keep: bool = False) -> None:
        bundle, target = self.bundle(run), self.targets.own_cluster(run)
        await managedresources.remove(target, bundle.namespace, bundle.name, bundle.secret_name, keep=keep)


class SeedActuator(_ManagedResourceActuator):
    """For what runs in the seed. It does not move along with a Shoot: the next seed has its own."""

    async def reconcile(self, run: Run) -> Status:
        await managedresources.ensure_healthy(self.targets.own_cluster(run), self.bundle(run))
        return {}

    async def migrate(self, run: Run) -> None:
        await self._remove(run)


class ShootActuator(_ManagedResourceActuator):
    """For what runs in the Shoot, and stays there while its control plane moves. Nobody waits for it."""

    async def reconcile(self, run: Run) -> Status:
        target = self.targets.own_cluster(run)
        await managedresources.ensure(target, self.bundle(run))
        if run.shoot and run.shoot.test_force_delete and not run.drift:
            for _ in range(2):
                await target.create(NETWORK_POLICIES, wanted.leftover(run.ref.namespace))
        return {}

    async def migrate(self, run: Run) -> None:
        await self._remove(run, keep=True)

    async def force_delete(self, run: Run) -> None:
        """Let go of what a test has left over. Of the ManagedResource the client takes care itself."""
        target = self.targets.own_cluster(run)
        names = await target.names_labelled(NETWORK_POLICIES, run.ref.namespace, wanted.labels(self.type))
        for name in names:
            await _remove_leftover(target, run.ref.namespace, name)


class AfterWorkerActuator(_ManagedResourceActuator):
    """For what needs machines: while the Shoot sleeps, there are none to wait for."""

    async def reconcile(self, run: Run) -> Status:
        target, bundle = self.targets.own_cluster(run), self.bundle(run)
        if run.shoot and run.shoot.hibernation_enabled:
            await managedresources.ensure(target, bundle)
        else:
            await managedresources.ensure_healthy(target, bundle)
        return {}

    async def migrate(self, run: Run) -> None:
        await self._remove(run, keep=True)


async def _remove_leftover(target: TargetCluster, namespace: str, name: str) -> None:
    await target.merge(NETWORK_POLICIES, namespace, name, {"metadata": {"finalizers": None}})
    await target.remove(NETWORK_POLICIES, namespace, name)
