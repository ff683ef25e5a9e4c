"""One run of a MachineDeployment: the next step towards machines of its template, and a status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bus.clusters.clusters import Clusters
from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished, backoff
from windowbox.errors import Malformed
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_LEASES, MACHINE_SETS
from workers.core import clock
from workers.core.reconcile import Request
from workers.machines import deployments, facts, fence
from workers.machines.deployment import autoscaling, rollback, rollout, status, strategies
from workers.machines.deployment.rollout import DeploymentRun
from workers.machines.deployment.state import State
from workers.machines.facts import MachineFacts
from workers.machines.fence import RENEWAL, Held
from workers.machines.nodes import Nodes
from workers.machines.objects import MachineObjects, with_finalizer, without_finalizer
from workers.machines.reporting import StatusReport
from workers.machines.sets import MachineSet, oldest_first
from workers.machines.views import MachineViews

_LONGEST = 300.0


class MachineDeploymentRuns:
    """What becomes of MachineDeployments. Safe to repeat, and to be stopped anywhere."""

    def __init__(self, clusters: Clusters, views: MachineViews) -> None:
        self._clusters = clusters
        self._views = views

    async def reconcile(self, request: Request) -> Outcome:
        ref, recorder, wish = request.ref, request.recorder, request.wish
        found = await recorder.read(ref)
        if found is None:
            return Ignored("gone")
        report = StatusReport(found, request.reports)
        await report.begin()
        lease = await fence.claim(self._clusters, ref, recorder)
        if isinstance(lease, Held):
            if not wish.reported:
                report.event("Warning", "NamespaceServedByOthers", str(lease))
                await report.end({})
            return Unfinished(str(lease), RequeueAfter(Wish(reason=Reason.RETRY), max(1.0, lease.remaining)))
        try:
            spec = deployments.lenient(found) if found.deleting else deployments.checked(found)
        except Malformed as error:
            if not wish.reported:
                report.event("Warning", "InvalidSpec", str(error))
                await report.end({})
            return Failed(str(error))
        objects = MachineObjects(self._clusters, ref, recorder, lease)
        nodes = Nodes(self._clusters, ref, recorder, lease)
        run = DeploymentRun(State(found, spec), objects, nodes, report, recorder, await clock.now(recorder))
        return await self._reconcile(run, wish)

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        return {}  # the Event says it

    async def _reconcile(self, run: DeploymentRun, wish: Wish) -> Outcome:
        if run.object.deleting and keys.FINALIZER not in run.object.finalizers:
            return Ignored()
        if not run.object.deleting:
            await rollout.write(run, with_finalizer(run.object.metadata, keys.FINALIZER))
        if not run.state.spec.selector and not run.object.deleting:
            return await self._selecting_all(run)
        await self._load(run)
        if run.object.deleting:
            return await self._delete(run)
        run.collisions = facts.number(run.report.shown.get("collisionCount"))
        if condition := status.paused(run.state, run.report.shown):
            run.conditions.append(condition)
        machines = [one for found in run.state.machines.values() for one in found]
        if chosen := autoscaling.chosen(run.object, machines, run.now):
            await rollout.mark_chosen(run, chosen)
        back = None if run.state.spec.paused else rollback.rollback(run.state)
        if back:
            await rollout.roll_back(run, back)
            await run.report.end({})
            return Done(back.note)
        await strategies.advance(run)
        return await self._finish(run, wish)

    async def _load(self, run: DeploymentRun) -> None:
        """The sets that it owns, and their machines. Sets without an owner that it selects are adopted."""
        sets = []
        for one in await self._views.sets(run.objects.ref, run.recorder):
            matches = facts.selects(run.state.spec.selector, one.labels)
            if one.owner == run.object.uid and matches:
                sets.append(one)
            elif one.owner == run.object.uid and not matches:
                await self._own(run, one, [])
            elif not one.owner and matches and not one.object.deleting and not run.object.deleting:
                owner = facts.owner_reference(run.object, "MachineDeployment")
                sets += await self._own(run, one, [owner])
        machines: dict[str, list[MachineFacts]] = defaultdict(list)
        for machine in await self._views.machines(run.objects.ref, run.recorder):
            machines[machine.owner].append(machine)
        of_sets = {one.uid: tuple(machines[one.uid]) for one in sets}
        run.state = State(run.object, run.state.spec, tuple(oldest_first(sets)), of_sets)

    async def _own(
        self, run: DeploymentRun, one: MachineSet, owners: list[dict[str, object]]
    ) -> list[MachineSet]:
        """Adopt a set, or release it."""
        before = one.object.metadata.get("ownerReferences") or []
        kept = [owner for owner in before if mapping(owner).get("uid") != run.object.uid]
        patch = {"metadata": {"uid": one.uid, "ownerReferences": [*kept, *owners] or None}}
        patched = await run.objects.patch(MACHINE_SETS, one.name, patch, one.object.resource_version)
        return [MachineSet(patched)] if patched else []

    async def _delete(self, run: DeploymentRun) -> Outcome:
        """Delete the sets; when they are gone, so may it be."""
        sets: Sequence[MachineSet] = run.state.sets
        if not sets:
            # What is seen on the bus may be older than what was made last.
            live = [MachineSet(one) for one in await run.objects.listed(MACHINE_SETS)]
            sets = [one for one in live if one.owner == run.object.uid]
        if not sets:
            await rollout.write(run, without_finalizer(run.object, keys.FINALIZER))
            return Done("removed")
        for one in sets:
            if not one.object.deleting:
                await run.objects.delete(MACHINE_SETS, one.name, one.uid)
        await run.report.end(status.counts(run.state))
        return Unfinished("waiting for its MachineSets to be gone")

    async def _selecting_all(self, run: DeploymentRun) -> Outcome:
        note = "This deployment is selecting all machines. A non-empty selector is required."
        if facts.number(run.report.shown.get("observedGeneration")) < run.object.generation:
            run.report.event("Warning", "SelectingAll", note)
        await run.report.end({"observedGeneration": run.object.generation})
        return Failed(note)

    async def _finish(self, run: DeploymentRun, wish: Wish) -> Outcome:
        state, shown = run.state, run.report.shown
        counted = status.counts(state)
        conditions = [*run.conditions, status.available(state, counted), *status.of_sets(state)]
        said = state.spec.paused or any(one.type == status.PROGRESSING for one in conditions)
        if not said and (progress := status.progressing(state, counted, shown, run.now)):
            conditions.append(progress)
        wanted = {
            **counted,
            "collisionCount": run.collisions or None,
            "conditions": status.shown_with(shown, conditions, run.now, renew=True),
        }
        changed = await run.report.end(wanted) or run.changed
        looks = [(RENEWAL, f"the Lease {MACHINE_LEASES.named} of its namespace is renewed then")]
        if (left := status.remaining(state, {**shown, **wanted}, run.now)) is not None and left > 0:
            looks.append((left + 1, "its roll-out is late then: spec.progressDeadlineSeconds are over"))
        if run.again is not None:
            looks.append((run.again, "a node was changed by others meanwhile, and is marked again"))
        if run.collisions != facts.number(shown.get("collisionCount")):
            looks.append((0.05, "a MachineSet of that name is there: the next name is tried"))
        after, why = min(looks)
        again = RequeueAfter(Wish(reason=Reason.DUE), after, why)
        if run.node_error:
            pause = backoff(wish.attempt + 1, first=1.0, longest=_LONGEST)
            if pause <= after:
                retry = Wish(reason=Reason.RETRY, attempt=wish.attempt + 1)
                again = RequeueAfter(retry, pause, str(run.node_error))
        return Done("ensured", again) if changed else Ignored(requeue=again)
