"""The reconciler of MachineDeployments: one step towards machines of the current template, and a status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bus.clusters.clusters import Clusters
from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished, backoff
from windowbox.errors import Malformed
from windowbox.models import machinekeys as keys
from windowbox.models.machines import StrategyType
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_LEASES, MACHINE_SETS, MACHINES
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock
from workers.core.reconcile import Request
from workers.machines import deployments, facts, fence
from workers.machines.deployment import deploymentrequests, deploymentstatus, inplaceupdate, setsizes
from workers.machines.deployment.deploymentrun import DeploymentRun
from workers.machines.deployment.deploymentstate import State
from workers.machines.facts import MachineFacts
from workers.machines.fence import RENEWAL, Held
from workers.machines.machineobjects import MachineObjects, with_finalizer, without_finalizer
from workers.machines.nodes import Nodes
from workers.machines.reporting import StatusReport
from workers.machines.sets import MachineSet, oldest_first
from workers.machines.views import MachineViews

_LONGEST = 300.0


class MachineDeploymentReconciler:
    """Reconciles MachineDeployments. Idempotent; may be cancelled at any point."""

    def __init__(self, clusters: Clusters, views: MachineViews, settings: MachineSettings) -> None:
        self._clusters = clusters
        self._views = views
        self._settings = settings

    async def reconcile(self, request: Request) -> Outcome:
        ref, recorder, wish = request.ref, request.recorder, request.wish
        found = await recorder.read(ref)
        if found is None:
            return Ignored("gone")
        report = StatusReport(found, request.reports)
        await report.begin()
        now = await clock.now(recorder)
        lease = await fence.claim(self._clusters, ref, recorder, now)
        if isinstance(lease, Held):
            if not wish.reported:
                report.event("Warning", "NamespaceServedByOthers", str(lease))
                await report.end({})
            return Unfinished(str(lease), RequeueAfter(Wish(reason=Reason.RETRY), max(1.0, lease.remaining)))
        try:
            most = self._settings.max_replicas
            spec = deployments.lenient(found) if found.deleting else deployments.checked(found, most)
        except Malformed as error:
            if not wish.reported:
                report.event("Warning", "InvalidSpec", str(error))
                await report.end({})
            return Failed(str(error))
        objects = MachineObjects(self._clusters, ref, recorder, lease)
        nodes = Nodes(self._clusters, ref, recorder, lease)
        run = DeploymentRun(State(found, spec), objects, nodes, report, recorder, now)
        return await self._reconcile(run, wish)

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        return {}  # the Event says it

    async def _reconcile(self, run: DeploymentRun, wish: Wish) -> Outcome:
        if run.object.deleting:
            if keys.FINALIZER not in run.object.finalizers:
                return Ignored()
            await self._load(run)
            return await self._delete(run)
        if added := with_finalizer(run.object.metadata, keys.FINALIZER):
            await run.patch_deployment({"metadata": added})
        if not run.state.spec.selector:
            note = "This deployment is selecting all machines. A non-empty selector is required."
            if facts.number(run.report.shown.get("observedGeneration")) < run.object.generation:
                run.report.event("Warning", "SelectingAll", note)
            await run.report.end({"observedGeneration": run.object.generation})
            return Failed(note)
        await self._load(run)
        run.collisions = facts.number(run.report.shown.get("collisionCount"))
        if condition := deploymentstatus.paused(run.state, run.report.shown):
            run.conditions.append(condition)
        machines = [one for owned in run.state.machines.values() for one in owned]
        if chosen := deploymentrequests.chosen(run.object, machines, run.now):
            for machine, since in chosen.marks:
                annotations = {keys.PRIORITY: "1", keys.MARKED_FOR_DELETION: since}
                patch = {"metadata": {"uid": machine.uid, "annotations": annotations}}
                await run.objects.patch(MACHINES, machine.name, patch)
            if chosen.annotation != run.object.annotations.get(keys.TRIGGER_DELETION):
                trigger = {keys.TRIGGER_DELETION: chosen.annotation}
                await run.patch_deployment({"metadata": {"annotations": trigger}})
        back = None if run.state.spec.paused else deploymentrequests.rollback(run.state)
        if back:
            # The changed template triggers the next run, which rolls.
            if back.to:
                await run.untaint_nodes(back.to)
                await run.forget_taint(back.to)
            run.report.event(back.type, back.reason, back.note)
            await run.patch_deployment(back.patch)
            await run.report.end({})
            return Done(back.note)
        await advance(run)
        return await self._finish(run, wish)

    async def _load(self, run: DeploymentRun) -> None:
        """Read the sets of the deployment and their machines; adopt sets without an owner that it selects."""
        sets = []
        for one in await self._views.sets(run.objects.ref, run.recorder):
            matches = facts.selects(run.state.spec.selector, one.labels)
            if one.owner == run.object.uid and matches:
                sets.append(one)
                continue
            adopts = not one.owner and matches and not one.object.deleting and not run.object.deleting
            if one.owner != run.object.uid and not adopts:
                continue
            # Adopt it, or release a set that the selector does not match any longer.
            owners = one.object.metadata.get("ownerReferences") or []
            kept = [owner for owner in owners if mapping(owner).get("uid") != run.object.uid]
            if adopts:
                kept.append(facts.owner_reference(run.object, "MachineDeployment"))
            patch = {"metadata": {"uid": one.uid, "ownerReferences": kept or None}}
            patched = await run.objects.patch(MACHINE_SETS, one.name, patch, one.object.resource_version)
            if adopts and patched:
                sets.append(MachineSet(patched))
        machines: dict[str, list[MachineFacts]] = defaultdict(list)
        for machine in await self._views.machines(run.objects.ref, run.recorder):
            machines[machine.owner].append(machine)
        of_sets = {one.uid: tuple(machines[one.uid]) for one in sets}
        run.state = State(run.object, run.state.spec, tuple(oldest_first(sets)), of_sets)

    async def _delete(self, run: DeploymentRun) -> Outcome:
        """Delete the sets. The finalizer is removed after the last."""
        sets: Sequence[MachineSet] = run.state.sets
        if not sets:
            # The bus may not show yet a set that the last run has created.
            live = [MachineSet(one) for one in await run.objects.listed(MACHINE_SETS)]
            sets = [one for one in live if one.owner == run.object.uid]
        if not sets:
            await run.patch_deployment({"metadata": without_finalizer(run.object, keys.FINALIZER)})
            return Done("removed")
        for one in sets:
            if not one.object.deleting:
                await run.objects.delete(MACHINE_SETS, one.name, one.uid)
        await run.report.end(deploymentstatus.counts(run.state))
        return Unfinished("waiting for its MachineSets to be gone")

    async def _finish(self, run: DeploymentRun, wish: Wish) -> Outcome:
        """Report the status, and requeue for the first due time."""
        state, shown = run.state, run.report.shown
        counted = deploymentstatus.counts(state)
        conditions = [
            *run.conditions,
            deploymentstatus.available(state, counted),
            *deploymentstatus.of_sets(state),
        ]
        decided = state.spec.paused or any(one.type == deploymentstatus.PROGRESSING for one in conditions)
        if not decided and (progress := deploymentstatus.progressing(state, counted, shown, run.now)):
            conditions.append(progress)
        wanted = {
            **counted,
            "collisionCount": run.collisions or None,
            "conditions": deploymentstatus.shown_with(shown, conditions, run.now),
        }
        changed = await run.report.end(wanted) or run.changed
        dues = [(RENEWAL, f"the Lease {MACHINE_LEASES.named} of its namespace is renewed then")]
        left = deploymentstatus.remaining(state, {**shown, **wanted}, run.now)
        if left is not None and left > 0:
            dues.append((left + 1, "its roll-out is late then: spec.progressDeadlineSeconds are over"))
        if run.again is not None:
            dues.append((run.again, "another client changed a node meanwhile: it is marked then"))
        if run.collisions != facts.number(shown.get("collisionCount")):
            dues.append((0.05, "a MachineSet of that name exists: the next name is tried"))
        after, why = min(dues)
        again = RequeueAfter(Wish(reason=Reason.DUE), after, why)
        if run.node_error:
            # The status is reported although nodes could not be patched: the run retries them, with backoff.
            pause = backoff(wish.attempt + 1, first=1.0, longest=_LONGEST)
            if pause <= after:
                retry = Wish(reason=Reason.RETRY, attempt=wish.attempt + 1)
                again = RequeueAfter(retry, pause, str(run.node_error))
        return Done("ensured", again) if changed else Ignored(requeue=again)


async def advance(run: DeploymentRun) -> None:
    """One step: scale, or roll, never both."""
    state = run.state
    if state.spec.paused:
        await run.scale(setsizes.scaled(state), all_annotated=True)
        await run.remove_surplus()
    elif setsizes.is_scaling(state):
        await run.update_newest()
        await run.scale(setsizes.scaled(run.state), all_annotated=True)
    elif state.spec.strategy == StrategyType.IN_PLACE_UPDATE and state.old:
        await inplaceupdate.update(run)
    else:
        # The strategy, or the template, has been changed during an in-place update.
        if state.new and keys.SCALE_UP_DISABLED in state.new.labels:
            await inplaceupdate.unmark_newest(run)
        if state.spec.strategy == StrategyType.RECREATE:
            # Remove all old machines; the new set is created after the last is gone.
            if await run.scale({one.name: 0 for one in run.state.old if one.wanted > 0}):
                return
            if any(run.state.machines.get(one.uid) or one.existing for one in run.state.old):
                return
            new = await run.ensure_newest(run.state.spec.replicas)
            if new and new.wanted != run.state.spec.replicas:
                await run.scale({new.name: run.state.spec.replicas})
            elif deploymentstatus.complete(run.state):
                await run.remove_surplus()
        elif new := await run.ensure_newest(setsizes.first_size(run.state)):
            await run.mark_nodes()
            scaled = await run.scale(setsizes.step(run.state, run.state.new or new))
            if not scaled and deploymentstatus.complete(run.state):
                await run.unmark_nodes()
                if run.state.new:
                    await run.forget_taint(run.state.new)
                await run.remove_surplus()
