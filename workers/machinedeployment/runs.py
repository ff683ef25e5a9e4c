"""One run of a MachineDeployment: the next step towards machines of its template, and a status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from bus.connection import Bus
from bus.messages import Reason, Result, Wish
from bus.pool import Outcome, RequeueAfter, backoff
from windowbox.clients.clusters import Clusters
from windowbox.errors import Conflict, Malformed, PermanentError, TransientError
from windowbox.models import machinekeys as keys
from windowbox.models.machines import StrategyType
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, ObjectRef
from workers import clock
from workers.machinedeployment import machinesets, rolling, scaling, status
from workers.machinedeployment.rolling import Sizes
from workers.machinedeployment.state import State
from workers.machinedeployment.status import Condition
from workers.machines import deployments, facts, templates
from workers.machines.facts import MachineFacts
from workers.machines.fence import RENEWAL, Fence
from workers.machines.objects import MachineObjects, with_finalizer
from workers.machines.reporting import StatusReport
from workers.machines.sets import MachineSet, oldest_first
from workers.machines.views import MachineViews
from workers.recorder import Recorder

_LONGEST = 300.0


@dataclass
class DeploymentRun:
    """A MachineDeployment as this run sees it, and what it reports."""

    state: State
    objects: MachineObjects
    report: StatusReport
    recorder: Recorder
    now: datetime
    conditions: list[Condition] = field(default_factory=list)
    collisions: int = 0
    changed: bool = False

    @property
    def object(self) -> Object:
        return self.state.deployment

    def replace(self, one: MachineSet) -> None:
        """Go on with a newer version of a set."""
        others = [other for other in self.state.sets if other.uid != one.uid]
        self.state = State(
            self.state.deployment, self.state.spec, tuple(oldest_first([*others, one])), self.state.machines
        )
        self.changed = True


class MachineDeploymentRuns:
    """What becomes of MachineDeployments. Safe to repeat, and to be stopped anywhere."""

    def __init__(self, bus: Bus, clusters: Clusters, views: MachineViews) -> None:
        self._bus = bus
        self._clusters = clusters
        self._views = views
        self._fence = Fence(clusters)

    async def run(self, ref: ObjectRef, wish: Wish, recorder: Recorder) -> Outcome:
        """Do the next step, whatever the wish once meant."""
        found = await recorder.read(ref)
        if found is None:
            return Outcome(Result.GONE)
        report = StatusReport(self._bus, ref, found, recorder)
        try:
            await report.begin()
            if held := await self._fence.claim(ref, recorder):
                if not wish.reported:
                    report.event("Warning", "NamespaceServedByOthers", str(held))
                    await report.end({})
                again = RequeueAfter(Wish(reason=Reason.RETRY), max(1.0, held.remaining))
                return Outcome(Result.BLOCKED, again, str(held))
            objects = MachineObjects(self._clusters, ref, recorder)
            state = State(found, deployments.checked(found))
            run = DeploymentRun(state, objects, report, recorder, await clock.now(recorder))
            return await self._reconcile(run)
        except Malformed as error:
            if not wish.reported:
                report.event("Warning", "InvalidSpec", str(error))
                await report.end({})
            return Outcome(Result.REFUSED, note=str(error))
        except (TransientError, PermanentError) as error:
            return _again(error, wish)

    async def quarantine(self, ref: ObjectRef, recorder: Recorder) -> None:
        """Report that the MachineDeployment is left alone."""
        found = await recorder.read(ref)
        if found is None:
            return
        report = StatusReport(self._bus, ref, found, recorder)
        await report.begin()
        report.event(
            "Warning",
            "SetAside",
            "set aside, because working on this MachineDeployment ended the worker process three times in a "
            "row; it is taken up again when it changes, or in ten minutes",
        )
        await report.end({})

    async def _reconcile(self, run: DeploymentRun) -> Outcome:
        if run.object.deleting and keys.FINALIZER not in run.object.finalizers:
            return Outcome(Result.NOTHING_TO_DO)
        if not run.object.deleting:
            await self._write(run, with_finalizer(run.object.metadata, keys.FINALIZER))
        if not run.state.spec.selector:
            return await self._selecting_all(run)
        await self._load(run)
        if run.object.deleting:
            return await self._delete(run)
        run.collisions = facts.number(run.report.shown.get("collisionCount"))
        if condition := status.paused(run.state, run.report.shown):
            run.conditions.append(condition)
        await self._advance(run)
        return await self._finish(run)

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
        kept = [owner for owner in before if facts.mapping(owner).get("uid") != run.object.uid]
        patch = {"metadata": {"uid": one.uid, "ownerReferences": [*kept, *owners] or None}}
        patched = await run.objects.patch(MACHINE_SETS, one.name, patch, one.object.resource_version)
        return [MachineSet(patched)] if patched else []

    async def _advance(self, run: DeploymentRun) -> None:
        """One step: scale, or roll, never both."""
        state = run.state
        if state.spec.paused:
            await self._scale(run, scaling.sizes(state), all_annotated=True)
            await self._clean_up(run)
        elif scaling.is_scaling(state):
            await self._scale(run, scaling.sizes(state), all_annotated=True)
        elif state.spec.strategy == StrategyType.RECREATE:
            await self._recreate(run)
        else:
            await self._roll(run)

    async def _roll(self, run: DeploymentRun) -> None:
        new = await self._new_set(run, rolling.first_size(run.state))
        if new is None:
            return
        scaled = await self._scale(run, rolling.step(run.state, new))
        if not scaled and status.complete(run.state, status.counts(run.state)):
            await self._clean_up(run)

    async def _recreate(self, run: DeploymentRun) -> None:
        """Old machines go first; the new set is made when none is left."""
        if await self._scale(run, {one.name: 0 for one in run.state.old if one.wanted > 0}):
            return
        if any(run.state.machines.get(one.uid) or one.existing for one in run.state.old):
            return
        new = await self._new_set(run, run.state.spec.replicas)
        if new and new.wanted != run.state.spec.replicas:
            await self._scale(run, {new.name: run.state.spec.replicas})
        elif status.complete(run.state, status.counts(run.state)):
            await self._clean_up(run)

    async def _new_set(self, run: DeploymentRun, replicas: int) -> MachineSet | None:
        """The set of the template as it is now, up to date. None if it has to be looked at again."""
        state, new = run.state, run.state.new
        if new is None:
            new = await self._make_set(run, replicas)
        elif patch := machinesets.changes(state, new):
            patched = await run.objects.patch(MACHINE_SETS, new.name, patch, new.object.resource_version)
            if patched is None:
                raise Conflict(f"MachineSet {new.name} is gone", retry_after=0.1)
            run.replace(new := MachineSet(patched))
        if new is None:
            return None
        if not status.condition(run.report.shown, status.PROGRESSING) and not run.conditions:
            message = f'Found new machine set "{new.name}"'
            run.conditions.append(Condition(status.PROGRESSING, "True", status.FOUND, message))
        revision = str(machinesets.revision(run.state))
        if run.object.annotations.get(keys.REVISION) != revision:
            await self._write(run, {"annotations": {keys.REVISION: revision}})
        return new

    async def _make_set(self, run: DeploymentRun, replicas: int) -> MachineSet | None:
        body = machinesets.made(run.state, replicas, run.collisions)
        name = body["metadata"]["name"]
        try:
            new = MachineSet(await run.objects.create(MACHINE_SETS, body))
        except Conflict:
            return await self._existing(run, name)
        except PermanentError as error:
            message = f'Failed to create new machine set "{name}": {error}'
            run.conditions.append(Condition(status.PROGRESSING, "False", status.CREATE_ERROR, message))
            run.report.event("Warning", status.CREATE_ERROR, message)
            return None
        run.replace(new)
        message = f'Created new machine set "{name}"'
        run.conditions.append(Condition(status.PROGRESSING, "True", status.CREATED, message))
        if replicas:
            run.report.event("Normal", "ScalingMachineSet", f"Scaled up machine set {name} to {replicas}")
        return new

    async def _existing(self, run: DeploymentRun, name: str) -> MachineSet | None:
        """A set of this name that the bus has not told of yet, unless it is another's."""
        found = await run.objects.get(MACHINE_SETS, name)
        if found is None:
            raise Conflict(f"MachineSet {name} has just gone", retry_after=0.1)
        one = MachineSet(found)
        if one.owner == run.object.uid and templates.same(one.template, run.state.spec.template):
            run.replace(one)
            return one
        run.collisions += 1
        return None

    async def _scale(self, run: DeploymentRun, sizes: Sizes, *, all_annotated: bool = False) -> bool:
        """Give sets their new sizes. True if one has changed."""
        scaled = False
        annotations = scaling.noted(run.state)
        for one in run.state.sets:
            size = sizes.get(one.name)
            if size is None or one.object.deleting:
                continue
            changed = {k: v for k, v in annotations.items() if one.annotations.get(k) != v}
            if size == one.wanted and not (changed and all_annotated):
                continue
            patch = {"metadata": {"uid": one.uid, "annotations": changed}, "spec": {"replicas": size}}
            patched = await run.objects.patch(MACHINE_SETS, one.name, patch, one.object.resource_version)
            if patched is None:
                raise Conflict(f"MachineSet {one.name} is gone", retry_after=0.1)
            run.replace(MachineSet(patched))
            if size != one.wanted:
                scaled = True
                way = "up" if size > one.wanted else "down"
                run.report.event(
                    "Normal", "ScalingMachineSet", f"Scaled {way} machine set {one.name} to {size}"
                )
        return scaled

    async def _clean_up(self, run: DeploymentRun) -> None:
        for one in machinesets.surplus(run.state):
            await run.objects.delete(MACHINE_SETS, one.name, one.uid)
            run.changed = True

    async def _delete(self, run: DeploymentRun) -> Outcome:
        """Delete the sets; when they are gone, so may it be."""
        sets: Sequence[MachineSet] = run.state.sets
        if not sets:
            # What is seen on the bus may be older than what was made last.
            live = [MachineSet(one) for one in await run.objects.listed(MACHINE_SETS)]
            sets = [one for one in live if one.owner == run.object.uid]
        if not sets:
            left = [one for one in run.object.finalizers if one != keys.FINALIZER]
            await self._write(run, {"finalizers": left})
            return Outcome(Result.REMOVED)
        for one in sets:
            if not one.object.deleting:
                await run.objects.delete(MACHINE_SETS, one.name, one.uid)
        await run.report.end(status.counts(run.state))
        return Outcome(Result.WAITING, note="waiting for its MachineSets to be gone")

    async def _selecting_all(self, run: DeploymentRun) -> Outcome:
        note = "This deployment is selecting all machines. A non-empty selector is required."
        if facts.number(run.report.shown.get("observedGeneration")) < run.object.generation:
            run.report.event("Warning", "SelectingAll", note)
        await run.report.end({"observedGeneration": run.object.generation})
        return Outcome(Result.REFUSED, note=note)

    async def _write(self, run: DeploymentRun, metadata: dict[str, object]) -> None:
        """Change the deployment's metadata, if there is anything to change."""
        if not metadata:
            return
        patch = {"metadata": {"uid": run.object.uid, **metadata}}
        version = run.object.resource_version
        patched = await run.objects.patch(MACHINE_DEPLOYMENTS, run.object.name, patch, version)
        if patched is None:
            raise Conflict(f"MachineDeployment {run.object.name} is gone", retry_after=0.1)
        run.state = State(patched, run.state.spec, run.state.sets, run.state.machines)
        run.report.version = patched.resource_version

    async def _finish(self, run: DeploymentRun) -> Outcome:
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
        after = RENEWAL
        if (left := status.remaining(state, {**shown, **wanted}, run.now)) is not None and left > 0:
            after = min(after, left + 1)
        if run.collisions != facts.number(shown.get("collisionCount")):
            after = 0.05  # with another name
        again = RequeueAfter(Wish(reason=Reason.DUE), after)
        return Outcome(Result.ENSURED if changed else Result.NOTHING_TO_DO, again)


def _again(error: TransientError | PermanentError, wish: Wish) -> Outcome:
    attempt = wish.attempt + 1
    first = 0.05 if isinstance(error, TransientError) else 2.0
    after = getattr(error, "retry_after", None) or backoff(attempt, first=first, longest=_LONGEST)
    again = RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), after)
    return Outcome(Result.WAITING if isinstance(error, TransientError) else Result.FAILED, again, str(error))
