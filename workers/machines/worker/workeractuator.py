"""The actuator of Workers: writes MachineClasses and MachineDeployments, and waits for their machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from bus.transport.connection import Bus
from clouds import table
from clouds.frame.operator import faults
from clouds.frame.pools import Group
from windowbox.errors import Conflict, Malformed, TransientError, Waiting
from windowbox.models import machinekeys as keys
from windowbox.models.clouds import BY_TYPE, CLOUD_TYPES
from windowbox.models.gardener.worker import WorkerPool
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import (
    DEPLOYMENTS,
    MACHINE_CLASSES,
    MACHINE_CONTROLLER_MANAGER,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    MANAGED_RESOURCES,
    PLANE_DEPLOYMENTS,
    SECRETS,
    WORKERS,
    ObjectRef,
)
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock, healthchecks
from workers.core.cloudaccounts import CloudAccounts
from workers.core.healthchecks import Result
from workers.core.lifecycle import shootfacts, statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Run, Status, shoot_of
from workers.core.owned import manifests
from workers.core.owned.manifests import Manifest
from workers.core.owned.targets import TargetCluster, TargetClusters, in_batches
from workers.machines.facts import number
from workers.machines.worker import workerplan, workerstate
from workers.machines.worker.workerplan import Plan
from workers.machines.worker.workerrestoration import Restoration
from workers.machines.worker.workerstate import Failed, Machine, Observed, Pending

KIND = Kind(
    resource=WORKERS,
    pool="worker",
    finalizer="extensions.gardener.cloud/worker",
    descriptions=statuses.Descriptions(
        reconcile=statuses.descriptions_for("Worker").reconcile,
        delete=statuses.descriptions_for("Worker").delete,
        migrate=statuses.OperationTexts(
            "Starting migration of the Worker", "Successfully migrated Worker", "Error migrating Worker"
        ),
        restore=statuses.OperationTexts(
            "Restoring the Worker", "Successfully reconciled Worker", "Error restoring Worker"
        ),
    ),
    classes=frozenset({"shoot"}),
    clouds=BY_TYPE,
    deadline=300.0,
    strips_all_finalizers=False,
)

MANAGER_BUNDLE = "extension-worker-mcm-shoot"
"""The ManagedResource with what Gardener's machine-controller-manager needs in the Shoot."""
_CONFLICTS = 5
"""The autoscaler and the machine-controller-manager write to MachineDeployments, too."""

_FORCED = {"metadata": {"labels": {keys.FORCE_DELETION: "True"}}}
_HOLDING = frozenset((keys.FINALIZER, keys.SECRET_FINALIZER))
_KINDS = {
    MACHINES: "machines",
    MACHINE_SETS: "machine sets",
    MACHINE_DEPLOYMENTS: "machine deployments",
    MACHINE_CLASSES: "machine classes",
}
FAILED_RETRY = 30.0
"""Seconds until the next run while a machine has failed."""
_REQUEUE_AFTER = 1.0
"""Seconds until the next check of objects that send no event."""


class WorkerActuator(Actuator):
    """Gives a Shoot the machines that its Worker asks for."""

    def __init__(
        self,
        bus: Bus,
        targets: TargetClusters,
        settings: MachineSettings,
        accounts: CloudAccounts,
        conditions: Literal["short", "long"] = "short",
    ) -> None:
        self._bus = bus
        self._targets = targets
        self._accounts = accounts
        self._with_resources = settings.resources
        self._ours = settings.mode == "full"
        """windowbox serves MachineDeployments; otherwise Gardener's machine-controller-manager does."""
        self._conditions = conditions

    async def reconcile(self, run: Run) -> Status:
        plan, before = await self._read(run)
        if run.drift and any(
            group.class_name not in before.classes and workerstate.class_name(found) in before.classes
            for group in plan.groups
            if (found := before.deployments.get(group.name))
        ):
            # The Cluster has changed. Its machines are replaced when its client asks for it.
            return {}
        return await self._ensure(run, plan, before, None)

    async def restore(self, run: Run) -> Status:
        plan, before = await self._read(run)
        restoration = Restoration.of(run.object, {group.name for group in plan.groups})
        return await self._ensure(run, plan, before, restoration)

    async def delete(self, run: Run) -> None:
        """Remove all machine objects. The spec is not read: its images and Secrets may be gone.

        Raises Waiting until the last one is gone.
        """
        worker, target, namespace = run.object, self._targets.own_cluster(run), run.ref.namespace
        found = await workerstate.observe(self._bus, run)
        await force_machines(target, namespace, found.machines)
        # MachineDeployments delete their sets and machines. Sets and machines without an owner follow.
        if found.deployments:
            kind, left = MACHINE_DEPLOYMENTS, [o.name for o in found.deployments.values() if not o.deleting]
        elif found.sets:
            kind, left = MACHINE_SETS, [one.name for one in found.sets if not one.deleting]
        else:
            kind, left = MACHINES, [one.name for one in found.machines if not one.deleting]
        await in_batches(target.remove(kind, namespace, name) for name in left)
        require_no_failure(found.deployments.values())
        # Machines cannot be deleted without their class and its Secret.
        if not (found.machines or found.sets or found.deployments):
            await remove_classes(target, namespace, found.classes)
        _require_none(map(len, (found.machines, found.sets, found.deployments, found.classes)))
        # A recreated bus may not know objects that exist: only the API proves that none is left.
        _require_none(
            [len(await target.names_labelled(kind, namespace, {})) for kind in _KINDS],
            retry_after=_REQUEUE_AFTER,
        )
        # The machine controller holds the provider's credentials until it has deleted the last machine.
        reference: Any = worker.spec.get("secretRef") or {}
        name, of_secret = reference.get("name"), reference.get("namespace") or namespace
        if name and _HOLDING & set(await target.finalizers(SECRETS, str(of_secret), str(name))):
            raise Waiting(
                "machine class credentials secret has not yet been acquired or released",
                retry_after=_REQUEUE_AFTER,
            )

    async def force_delete(self, run: Run) -> None:
        """Nothing: gardenlet removes the machines of a Shoot that is deleted by force."""

    async def _read(self, run: Run) -> tuple[Plan, Observed]:
        """The plan for the Worker, and the objects found."""
        cluster = await self._targets.shoot_cluster(run)
        shoot = shootfacts.facts(cluster)
        if not shoot.technical_id:
            shoot = shoot_of(run)
        plan = workerplan.plan(
            run.object,
            shoot,
            cluster.spec,
            with_resources=self._with_resources,
            credentials=await self._credentials(run),
        )
        return plan, await workerstate.observe(self._bus, run)

    async def _credentials(self, run: Run) -> Mapping[str, str] | None:
        """What classes of a cloud may contain of its Secret; None for type local."""
        if run.object.spec.get("type") not in CLOUD_TYPES:
            return None
        cloud, secret = table.cloud(str(run.object.spec["type"])), mapping(run.object.spec.get("secretRef"))
        if not secret.get("name"):
            raise Malformed("spec.secretRef.name is not set: name the Secret with the cloud's credentials")
        namespace = str(secret.get("namespace") or run.ref.namespace)
        return (await self._accounts.account(run, cloud, namespace, str(secret["name"]))).shown

    async def _ensure(
        self, run: Run, plan: Plan, before: Observed, restoration: Restoration | None
    ) -> Status:
        """Write what differs from the plan. Returns the status once all machines are ready."""
        target, namespace = self._targets.own_cluster(run), plan.site.namespace
        await self._ensure_classes(run, target, plan, before)
        if restoration:
            await restoration.create(target, before)
            if not self._ours and not plan.hibernated:
                await self._scale_manager(target, namespace, 1)
        if plan.hibernated:
            await force_machines(target, namespace, before.machines)
        found = await self._ensure_deployments(target, plan, before, restoration)
        status = await self._status(run, target, plan, found)
        verdict = workerstate.verdict(plan.groups, found, before, hibernated=plan.hibernated)
        if not run.drift:
            # The status is reported while machines are missing, too: gardenlet waits for its list.
            error: Waiting | TransientError
            match verdict:
                case Pending(text):
                    error = Waiting(text)
                    error.status = status
                    raise error
                case Failed(text):
                    words = f"failed while waiting for all machine deployments to be ready: {text}"
                    codes = _codes(run.object, text)
                    error = TransientError(words, retry_after=FAILED_RETRY, codes=codes)
                    error.status = status
                    raise error
            await self._clean_up(target, plan, before, status)
        if verdict is None:
            # A check for drift reports them, too: a person chooses when nodes are updated.
            status |= workerstate.in_place_hashes(run.object, plan.groups, found)
        return status

    async def _ensure_classes(self, run: Run, target: TargetCluster, plan: Plan, before: Observed) -> None:
        """Write the Secrets, and then the MachineClasses, which refer to them."""

        async def user_data(pool: WorkerPool) -> bytes:
            reference = pool.user_data_secret_ref
            ref = ObjectRef(run.ref.cluster, SECRETS.id, run.ref.namespace, reference.name)

            def parse(data: Mapping[str, bytes]) -> bytes:
                if not data.get(reference.key):
                    raise Malformed(
                        f"user data secret {reference.name} for worker pool {pool.name} has no "
                        f"{reference.key} field or it's empty: add it, or correct userDataSecretRef of "
                        "the pool"
                    )
                return data[reference.key]

            try:
                return await run.recorder.secret(ref, parse) or b""
            except Malformed as error:
                if str(error).startswith("user data secret"):
                    raise
                failed = f"failed fetching user data secret {reference.name} referenced in worker pool"
                raise Malformed(f"{failed} {pool.name}: {error}") from error

        # Secrets are not watched: the first run for each request reads them all.
        first = not (run.drift or workerstate.secrets_are_written(run.object))
        written = [group for group in plan.groups if first or group.class_name not in before.classes]
        pools = {group.pool.name: group.pool for group in written}
        scripts = {name: await user_data(pool) for name, pool in pools.items()}
        await in_batches(
            target.ensure_secret(workerplan.secret(group, plan.site, scripts[group.pool.name]))
            for group in written
        )

        async def ensure_class(wanted: Manifest) -> None:
            # A class that is being deleted still serves its machines, and is updated for them.
            found = await target.cached(MACHINE_CLASSES, plan.site.namespace, wanted["metadata"]["name"])
            if found is None or manifests.differs(MACHINE_CLASSES, found, wanted):
                await target.apply(MACHINE_CLASSES, wanted)

        await in_batches(map(ensure_class, plan.classes.values()))

    async def _ensure_deployments(
        self, target: TargetCluster, plan: Plan, before: Observed, restoration: Restoration | None
    ) -> dict[str, Object]:
        """Write the MachineDeployments that differ. Returns all wanted ones, as they are then."""
        scaled = restoration is not None or any(
            group.pool.maximum > group.pool.minimum for group in plan.groups
        )
        asleep = not any(number(one.spec.get("replicas")) for one in before.deployments.values())
        flags = {"hibernated": plan.hibernated, "scaled": scaled, "awake": not plan.hibernated and asleep}
        written: dict[str, Object] = {}

        async def ensure(group: Group) -> None:
            found = before.deployments.get(group.name)
            for _ in range(_CONFLICTS):
                restored = restoration.states.get(group.name) if restoration and found is None else None
                replicas = workerplan.replicas(group, found, **flags)
                if restored and not plan.hibernated:
                    replicas = restored.replicas
                try:
                    written[group.name] = await self._write(target, plan, group, found, replicas)
                    return
                except Conflict:
                    found = await target.live(MACHINE_DEPLOYMENTS, plan.site.namespace, group.name)
            raise TransientError(f"MachineDeployment {group.name}: changed by others again and again")

        await in_batches(map(ensure, plan.groups))
        return written

    async def _write(
        self, target: TargetCluster, plan: Plan, group: Group, found: Object | None, replicas: int
    ) -> Object:
        """Create or patch one MachineDeployment. Returns it as it is then; Conflict if it has changed."""
        if found is None:
            body = workerplan.deployment(group, plan.site, replicas)
            uid = await target.create_if_absent(MACHINE_DEPLOYMENTS, body)
            if uid is None:
                raise Conflict(f"MachineDeployment {group.name} is there already")
            return Object({**body, "metadata": {**body["metadata"], "uid": uid, "generation": 1}})
        if found.deleting:
            raise Waiting(f"waiting for the former MachineDeployment {group.name} to be gone")
        patch = workerplan.deployment_patch(found, group, plan.site, replicas)
        if not patch:
            return found
        # Replicas were computed from this version; the autoscaler may have changed them since.
        head = {**patch.get("metadata", {}), "uid": found.uid, "resourceVersion": found.resource_version}
        patch = {**patch, "metadata": head}
        changed = await target.merged(MACHINE_DEPLOYMENTS, plan.site.namespace, group.name, patch)
        if changed is None:
            raise Conflict(f"MachineDeployment {group.name} is gone")
        return changed

    async def _status(
        self, run: Run, target: TargetCluster, plan: Plan, found: Mapping[str, Object]
    ) -> Status:
        """The fields that do not depend on ready machines."""
        now, namespace = await clock.now(run.recorder), plan.site.namespace
        results: dict[str, list[Result]] = {
            healthchecks.EVERY_NODE_READY: [healthchecks.nodes(found.values())]
        }
        if self._conditions == "long":
            bundle = await target.cached(MANAGED_RESOURCES, namespace, MANAGER_BUNDLE)
            checked = healthchecks.managed_resource(namespace, MANAGER_BUNDLE, bundle)
            results[healthchecks.SYSTEM_COMPONENTS_HEALTHY] = [checked]
            if not self._ours:
                results[healthchecks.CONTROL_PLANE_HEALTHY] = [await manager_health(target, namespace)]
        if due := healthchecks.requeue_after(results):
            run.dues.append((due, "unfinished health checks are repeated"))
        listed = {} if run.drift else workerstate.machine_deployments(run.object, plan.groups, now)
        patch = healthchecks.conditions_patch(run.object, results, now, hibernated=plan.hibernated)
        return {**listed, "providerStatus": dict(plan.provider_status), **patch}

    async def _clean_up(self, target: TargetCluster, plan: Plan, before: Observed, status: Status) -> None:
        """Remove unwanted MachineDeployments: their machines served until the wanted ones were ready."""
        namespace, wanted = plan.site.namespace, {group.name for group in plan.groups}
        unwanted = [one for name, one in before.deployments.items() if name not in wanted]
        await in_batches(
            target.remove(MACHINE_DEPLOYMENTS, namespace, one.name) for one in unwanted if not one.deleting
        )
        classes = before.classes - {group.class_name for group in plan.groups}
        await remove_classes(target, namespace, classes)
        if unwanted and not self._ours:
            manager = await target.live(DEPLOYMENTS, namespace, MACHINE_CONTROLLER_MANAGER)
            replicas = manager.spec.get("replicas", 1) if manager else 0
            if not isinstance(replicas, int) or replicas <= 0:
                unwanted = []  # no controller runs that could delete them: they would be waited for in vain
        if unwanted:
            require_no_failure(unwanted)
            names = ", ".join(sorted(one.name for one in unwanted))
            waiting = Waiting(f"Waiting until undesired machine deployments are deleted: {names}")
            waiting.status = status
            raise waiting
        if plan.hibernated and not self._ours:
            await self._scale_manager(target, namespace, 0)

    async def _scale_manager(self, target: TargetCluster, namespace: str, replicas: int) -> None:
        """Start or stop Gardener's machine-controller-manager, if it has a Deployment."""
        patch = {"spec": {"replicas": replicas}}
        await target.merge(DEPLOYMENTS, namespace, MACHINE_CONTROLLER_MANAGER, patch, part="scale")


async def manager_health(target: TargetCluster, namespace: str) -> Result:
    """The health of Gardener's machine-controller-manager."""
    found = await target.cached(PLANE_DEPLOYMENTS, namespace, MACHINE_CONTROLLER_MANAGER)
    if found is None:  # Deployments of control planes may not be mirrored yet
        found = await target.live(DEPLOYMENTS, namespace, MACHINE_CONTROLLER_MANAGER)
    return healthchecks.deployment(namespace, MACHINE_CONTROLLER_MANAGER, found)


async def force_machines(target: TargetCluster, namespace: str, machines: Iterable[Machine]) -> None:
    """Have machines deleted without a drain of their nodes."""
    await in_batches(
        target.merge(MACHINES, namespace, one.name, _FORCED) for one in machines if not one.forced
    )


async def remove_classes(target: TargetCluster, namespace: str, classes: Iterable[str]) -> None:
    """Delete these MachineClasses, and first their Secrets, which have their names.

    Secrets are never listed. A finalizer holds each as long as its class exists.
    """
    unwanted = sorted(classes)
    await in_batches(target.remove(SECRETS, namespace, name) for name in unwanted)
    await in_batches(target.remove(MACHINE_CLASSES, namespace, name) for name in unwanted)


def _codes(worker: Object, text: str) -> tuple[str, ...]:
    """The codes that a cloud's extension finds in the text of a failed machine."""
    type_ = worker.spec.get("type")
    return faults.codes_in(table.cloud(type_).faults, text) if type_ in CLOUD_TYPES else ()


def require_no_failure(deployments: Iterable[Object]) -> None:
    """Raise the failure of the first failed machine."""
    if failed := healthchecks.failed_machines(deployments):
        name, reason = failed[0]
        raise TransientError(f"machine {name} failed: {reason}", retry_after=FAILED_RETRY)


def _require_none(left: Iterable[int], retry_after: float | None = None) -> None:
    """Wait while objects are left; `left` counts them, in the order of `_KINDS`."""
    named = ", ".join(f"{count} {words}" for count, words in zip(left, _KINDS.values(), strict=True) if count)
    if named:
        text = f"waiting until the following machine resources have been deleted: {named}"
        raise Waiting(text, retry_after=retry_after)
