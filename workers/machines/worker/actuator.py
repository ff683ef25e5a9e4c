"""Makes MachineClasses and MachineDeployments of a Worker's pools, and waits for their machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bus.transport.connection import Bus
from windowbox.errors import Conflict, Malformed, TransientError, Waiting
from windowbox.models.gardener import cloudprofile
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.objects import Object
from windowbox.models.refs import (
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MANAGED_RESOURCES,
    SECRETS,
    WORKERS,
    ObjectRef,
)
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock
from workers.core.health import checks, conditions
from workers.core.health.checks import Result
from workers.core.lifecycle import shoots, statuses
from workers.core.lifecycle.kinds import Actuator, Kind, Run, Status, shoot_of
from workers.core.owned import manifests
from workers.core.owned.targets import TargetCluster, TargetClusters, in_batches
from workers.machines.worker import (
    deletion,
    deployments,
    failures,
    manager,
    observed,
    readiness,
    specs,
    statusreport,
    wanted,
)
from workers.machines.worker.observed import Observed
from workers.machines.worker.readiness import Failed, Pending, Verdict
from workers.machines.worker.restoration import Restoration
from workers.machines.worker.wanted import Group, Site

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
    deadline=300.0,
    strips_all_finalizers=False,
)

MANAGER_BUNDLE = "extension-worker-mcm-shoot"
"""The ManagedResource with what Gardener's machine-controller-manager needs in the Shoot."""
_CONFLICTS = 5


@dataclass(frozen=True)
class Plan:
    """What a Worker asks for."""

    at: Site
    profile: CloudProfileSpec
    groups: Sequence[Group]
    hibernated: bool

    @property
    def names(self) -> frozenset[str]:
        return frozenset(group.name for group in self.groups)

    @property
    def classes(self) -> frozenset[str]:
        return frozenset(group.class_name for group in self.groups)


class WorkerActuator(Actuator):
    """Gives a Shoot the machines that its Worker asks for."""

    def __init__(
        self,
        bus: Bus,
        targets: TargetClusters,
        settings: MachineSettings,
        conditions: Literal["short", "long"] = "short",
    ) -> None:
        self._bus = bus
        self._targets = targets
        self._settings = settings
        self._conditions = conditions

    async def reconcile(self, run: Run) -> Status:
        plan, before = await self._plan(run), await self._observe(run)
        if run.drift and _wants_other_classes(plan, before):
            return {}  # a Cluster that has changed: its client says when
        return await self._ensure(run, plan, before, None)

    async def restore(self, run: Run) -> Status:
        plan, before = await self._plan(run), await self._observe(run)
        target = self._targets.own_cluster(run)
        restoration = Restoration.of(run.object, plan.names)
        await self._ensure_classes(run, target, plan, before)
        await restoration.create(target, before)
        if not self._ours and not plan.hibernated:
            await manager.scale(target, plan.at.namespace, 1)
        return await self._ensure(run, plan, before, restoration)

    async def delete(self, run: Run) -> None:
        await deletion.delete(run.object, self._targets.own_cluster(run), await self._observe(run))

    async def force_delete(self, run: Run) -> None:
        """Nothing: whoever deletes a Shoot by force removes its machines without us."""

    async def _observe(self, run: Run) -> Observed:
        return await observed.observe(self._bus, run.recorder, run.ref.cluster, run.ref.namespace)

    async def _plan(self, run: Run) -> Plan:
        cluster = await self._targets.shoot_cluster(run)
        shoot = shoots.facts(cluster)
        if not shoot.technical_id:
            shoot = shoot_of(run)
        profile = cloudprofile.profile(cluster.spec)
        spec = specs.checked(run.object, profile)
        at = wanted.site(run.object, spec, shoot, with_resources=self._settings.resources)
        groups = wanted.groups(run.object, spec, at, profile, cluster.spec.get("shoot") or {})
        return Plan(at, profile, groups, shoot.hibernation_enabled)

    async def _ensure(
        self, run: Run, plan: Plan, before: Observed, restoration: Restoration | None
    ) -> Status:
        target = self._targets.own_cluster(run)
        await self._ensure_classes(run, target, plan, before)
        if plan.hibernated:
            await deletion.force_machines(target, plan.at.namespace, before.machines)
        found = await self._ensure_deployments(target, plan, before, restoration)
        status = await self._status(run, plan, found)
        verdict = readiness.verdict(plan.groups, found, before, hibernated=plan.hibernated)
        if not run.drift:
            _require_ready(verdict, status)
            await self._clean_up(target, plan, before, status)
        if verdict is None:
            # Without a request, too: people choose when nodes are updated.
            status |= statusreport.in_place_hashes(run.object, plan.groups, found)
        return status

    async def _status(self, run: Run, plan: Plan, found: Mapping[str, Object]) -> Status:
        """What is told before there are machines."""
        now = await clock.now(run.recorder)
        results = await self._health(run, found)
        if due := conditions.requeue_after(results):
            run.dues.append((due, "health checks that are not finished are made again"))
        told = {} if run.drift else statusreport.deployments(run.object, plan.groups, now)
        return {
            **told,
            **statusreport.machine_images(run.object, plan.groups, plan.profile),
            **conditions.patch(run.object, results, now, hibernated=plan.hibernated),
        }

    async def _health(self, run: Run, found: Mapping[str, Object]) -> dict[str, list[Result]]:
        """The results of all checks, by the type of the condition."""
        results: dict[str, list[Result]] = {conditions.EVERY_NODE_READY: [checks.nodes(found.values())]}
        if self._conditions == "long":
            target, namespace = self._targets.own_cluster(run), run.ref.namespace
            components = await target.cached(MANAGED_RESOURCES, namespace, MANAGER_BUNDLE)
            checked = checks.managed_resource(namespace, MANAGER_BUNDLE, components)
            results[conditions.SYSTEM_COMPONENTS_HEALTHY] = [checked]
            if not self._ours:
                results[conditions.CONTROL_PLANE_HEALTHY] = [await manager.check(target, namespace)]
        return results

    async def _ensure_classes(self, run: Run, target: TargetCluster, plan: Plan, before: Observed) -> None:
        """First the Secrets, which classes refer to. They are not watched: each request has them read."""
        first = not (run.drift or statusreport.answered(run.object))
        secrets = [group for group in plan.groups if first or group.class_name not in before.classes]
        user_data = {group.pool.name: await self._user_data(run, group) for group in _one_of_each(secrets)}
        await in_batches(
            target.ensure_secret(wanted.secret(group, plan.at, user_data[group.pool.name]))
            for group in secrets
        )
        await in_batches(self._ensure_class(target, group, plan.at) for group in plan.groups)

    async def _ensure_class(self, target: TargetCluster, group: Group, at: Site) -> None:
        """One that is on its way out is still good for as long as there are machines of it."""
        found = await target.cached(MACHINE_CLASSES, at.namespace, group.class_name)
        manifest = wanted.machine_class(group, at)
        if found is None or manifests.differs(MACHINE_CLASSES, found, manifest):
            await target.apply(MACHINE_CLASSES, manifest)

    async def _user_data(self, run: Run, group: Group) -> bytes:
        reference = group.pool.user_data_secret_ref
        ref = ObjectRef(run.ref.cluster, SECRETS.id, run.ref.namespace, reference.name)

        def parse(data: Mapping[str, bytes]) -> bytes:
            if not data.get(reference.key):
                raise Malformed(
                    f"user data secret {reference.name} for worker pool {group.pool.name} has no "
                    f"{reference.key} field or it's empty: add it, or correct userDataSecretRef of the pool"
                )
            return data[reference.key]

        try:
            return await run.recorder.secret(ref, parse) or b""
        except Malformed as error:
            if str(error).startswith("user data secret"):
                raise
            raise Malformed(
                f"failed fetching user data secret {reference.name} referenced in worker pool "
                f"{group.pool.name}: {error}"
            ) from error

    async def _ensure_deployments(
        self, target: TargetCluster, plan: Plan, before: Observed, restoration: Restoration | None
    ) -> dict[str, Object]:
        """Write the MachineDeployments that differ. Returns all that are wanted as they are then."""
        scaled = restoration is not None or any(
            group.pool.maximum > group.pool.minimum for group in plan.groups
        )
        awake = not plan.hibernated and not any(map(deployments.replicas_of, before.deployments.values()))

        def replicas(group: Group, found: Object | None) -> int:
            if found is None and restoration and not plan.hibernated:
                return restoration.replicas(group)
            return deployments.replicas(group, found, hibernated=plan.hibernated, scaled=scaled, awake=awake)

        async def ensure(group: Group) -> Object:
            found = before.deployments.get(group.name)
            for _ in range(_CONFLICTS):
                try:
                    return await _write(target, group, plan.at, found, replicas(group, found))
                except Conflict:
                    found = await target.live(MACHINE_DEPLOYMENTS, plan.at.namespace, group.name)
            raise TransientError(f"MachineDeployment {group.name}: changed by others again and again")

        written: dict[str, Object] = {}

        async def keep(group: Group) -> None:
            written[group.name] = await ensure(group)

        await in_batches(map(keep, plan.groups))
        return written

    async def _clean_up(self, target: TargetCluster, plan: Plan, before: Observed, status: Status) -> None:
        """Remove what no pool asks for any more: its machines were needed until the others were there."""
        namespace = plan.at.namespace
        unwanted = [one for name, one in before.deployments.items() if name not in plan.names]
        await in_batches(
            target.remove(MACHINE_DEPLOYMENTS, namespace, one.name) for one in unwanted if not one.deleting
        )
        await deletion.remove_classes(target, namespace, before.classes - plan.classes)
        if unwanted and await self._at_work(target, namespace):
            failures.require_none(unwanted)
            names = ", ".join(sorted(one.name for one in unwanted))
            waiting = Waiting(f"Waiting until undesired machine deployments are deleted: {names}")
            waiting.status = status
            raise waiting
        if plan.hibernated and not self._ours:
            await manager.scale(target, namespace, 0)

    async def _at_work(self, target: TargetCluster, namespace: str) -> bool:
        """Whether somebody is there to delete machines."""
        return self._ours or await manager.replicas(target, namespace) > 0

    @property
    def _ours(self) -> bool:
        """Whether MachineDeployments are our own work."""
        return self._settings.mode == "full"


def _require_ready(verdict: Verdict, status: Status) -> None:
    """Wait for machines, telling what is known already."""
    match verdict:
        case Pending(text):
            waiting = Waiting(text)
            waiting.status = status
            raise waiting
        case Failed(text):
            words = f"failed while waiting for all machine deployments to be ready: {text}"
            error = TransientError(words, retry_after=failures.RETRY_AFTER)
            error.status = status
            raise error


async def _write(
    target: TargetCluster, group: Group, at: Site, found: Object | None, replicas: int
) -> Object:
    """Make a MachineDeployment what it ought to be. Returns it as it is then; Conflict if it has changed."""
    if found is None:
        made = deployments.deployment(group, at, replicas)
        uid = await target.create_if_absent(MACHINE_DEPLOYMENTS, made)
        if uid is None:
            raise Conflict(f"MachineDeployment {group.name} is there already")
        return Object({**made, "metadata": {**made["metadata"], "uid": uid, "generation": 1}})
    if found.deleting:
        raise Waiting(f"waiting for the former MachineDeployment {group.name} to be gone")
    patch = deployments.patch(found, group, at, replicas)
    if not patch:
        return found
    head = {**patch.get("metadata", {}), "uid": found.uid, "resourceVersion": found.resource_version}
    patch = {**patch, "metadata": head}
    changed = await target.merged(MACHINE_DEPLOYMENTS, at.namespace, group.name, patch)
    if changed is None:
        raise Conflict(f"MachineDeployment {group.name} is gone")
    return changed


def _one_of_each(groups: Iterable[Group]) -> list[Group]:
    """One group for each pool."""
    return list({group.pool.name: group for group in groups}.values())


def _wants_other_classes(plan: Plan, before: Observed) -> bool:
    """Whether the machines of a deployment that is there would be replaced, or updated in place."""
    return any(
        group.class_name not in before.classes and observed.class_name(found) in before.classes
        for group in plan.groups
        if (found := before.deployments.get(group.name))
    )
