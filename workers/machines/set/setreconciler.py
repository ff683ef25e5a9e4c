"""The reconciler of the pool `machineset`: Machines as `replicas` says, and a status that counts them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bus.clusters.clusters import Clusters
from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import Conflict, LeaseLost, Missing, PermanentError, TransientError
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, ObjectRef
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock
from workers.core.reconcile import Request
from workers.core.recorder import Recorder, at_once
from workers.machines import deployments, facts, fence, preservation, templates
from workers.machines.facts import MachineFacts
from workers.machines.fence import Held
from workers.machines.nodes import Nodes
from workers.machines.objects import MachineObjects, with_finalizer, without_finalizer
from workers.machines.reporting import StatusReport
from workers.machines.set import freezing, machines, replicas, status
from workers.machines.set.claims import claims
from workers.machines.set.replicas import Plan
from workers.machines.set.status import Condition
from workers.machines.sets import MachineSet
from workers.machines.views import MachineViews

_CREATED = "created"
"""In the memo: the number of machines that the set has created; the next one is named after it."""
_FIRST_BATCH = 1
_MIGRATION = 30.0
"""Seconds until the next check whether the Worker is still being migrated."""


@dataclass
class _Run:
    """A MachineSet as this run sees it, and what it reports."""

    set: MachineSet
    objects: MachineObjects
    report: StatusReport
    recorder: Recorder
    now: datetime
    conditions: list[Condition] = field(default_factory=list)
    error: TransientError | PermanentError | None = None

    @property
    def object(self) -> Object:
        return self.set.object


class MachineSetRuns:
    """Reconciles MachineSets. Idempotent; may be cancelled at any point."""

    def __init__(self, clusters: Clusters, views: MachineViews, settings: MachineSettings) -> None:
        self._clusters = clusters
        self._views = views
        self._settings = settings

    async def reconcile(self, request: Request) -> Outcome:
        ref, recorder = request.ref, request.recorder
        found = await recorder.read(ref)
        if found is None:
            return Ignored("gone")
        owner = MachineSet(found)
        if not found.deleting and (reason := machines.valid(owner)):
            return Failed(reason)
        lease = await fence.claim(self._clusters, ref, recorder)
        if isinstance(lease, Held):
            return Unfinished(str(lease), RequeueAfter(Wish(reason=Reason.RETRY), max(1.0, lease.remaining)))
        report = StatusReport(found, request.reports)
        await report.begin()
        objects = MachineObjects(self._clusters, ref, recorder, lease)
        run = _Run(owner, objects, report, recorder, await clock.now(recorder))
        return await self._reconcile(run, request)

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        return {}  # the Event says it

    async def _reconcile(self, run: _Run, request: Request) -> Outcome:
        if run.object.deleting and keys.FINALIZER not in run.object.finalizers:
            return Ignored()
        claimed = claims(run.object, await self._views.machines(run.objects.ref, run.recorder))
        if claimed.adopted or claimed.released:
            await self._claim(run, claimed.adopted, claimed.released)
        owned = [*claimed.owned, *claimed.adopted]
        await self._set_metadata(run, owned)
        if not run.object.deleting:
            owned = await self._copy_template(run, owned)
            owned = await self._preserve(run, owned)
        plan = await self._plan(run, owned)
        created = int(run.report.memo.get(_CREATED, 0))
        if plan.acts or (run.object.deleting and not owned):
            # The bus may be behind the last actions of this set: read the API server before it acts.
            await self._require_current(run)
            if await run.objects.are_leaving():
                return await self._skip_for_migration(run)
            everything = await run.objects.machines()
            owned = claims(run.object, everything).owned
            plan = await self._plan(run, owned)
            owned, created = await self._act(run, plan, owned, {one.name for one in everything}, created)
        if run.object.deleting and not owned:
            return await self._release(run)
        shown = status.status(run.set, owned, run.conditions, run.report.shown, run.now)
        changed = await run.report.end(shown, {_CREATED: created} if created else None)
        if run.error:
            raise run.error
        return _outcome(run, owned, plan, changed)

    async def _require_current(self, run: _Run) -> None:
        live = await run.objects.get(MACHINE_SETS, run.object.name)
        seen = (run.object.uid, run.object.generation, run.object.deleting)
        if live is None or (live.uid, live.generation, live.deleting) != seen:
            raise Conflict(f"MachineSet {run.object.name} has changed meanwhile", retry_after=0.2)

    async def _plan(self, run: _Run, owned: Sequence[MachineFacts]) -> Plan:
        nodes = await self._nodes(run, [one for one in owned if one.failed and one.node])
        return replicas.plan(run.set, owned, nodes, run.now)

    async def _nodes(self, run: _Run, failed: Sequence[MachineFacts]) -> dict[str, str | None]:
        """The preservation annotations of the nodes of failed machines."""
        said: dict[str, str | None] = {}
        nodes = Nodes(self._clusters, run.objects.ref, run.recorder, run.objects.fence)
        for one in failed:
            node = await nodes.get(one.node)
            said[one.node] = str(node.annotations.get(keys.PRESERVE, "")) if node else None
        return said

    async def _claim(
        self, run: _Run, adopted: Sequence[MachineFacts], released: Sequence[MachineFacts]
    ) -> None:
        if adopted and not await self._still_there(run):
            raise Conflict(f"{run.object.name} has changed meanwhile", retry_after=0.2)
        for one in adopted:
            owner = facts.owner_reference(run.object, "MachineSet")
            patch = {"metadata": {"uid": one.uid, "ownerReferences": [owner]}}
            await run.objects.patch(MACHINES, one.name, patch, one.version)
        for one in released:
            found = await run.objects.get(MACHINES, one.name)
            if found is None or found.uid != one.uid:
                continue
            owners = found.metadata.get("ownerReferences") or []
            kept = [owner for owner in owners if mapping(owner).get("uid") != run.object.uid]
            freed = {"metadata": {"uid": one.uid, "ownerReferences": kept or None}}
            await run.objects.patch(MACHINES, one.name, freed, found.resource_version)

    async def _still_there(self, run: _Run) -> bool:
        """Whether the set may adopt: it exists, and is not being deleted."""
        found = await run.objects.get(MACHINE_SETS, run.object.name)
        return found is not None and found.uid == run.object.uid and not found.deleting

    async def _set_metadata(self, run: _Run, owned: Sequence[MachineFacts]) -> None:
        """Set the finalizer and the freeze label in one write."""
        limit = await self._limits(run)
        count = freezing.counted(run.set, owned)
        frozen = freezing.is_frozen(run.set, count, limit)
        patch = {} if run.object.deleting else with_finalizer(run.object.metadata, keys.FINALIZER)
        if frozen != run.set.frozen:
            patch["labels"] = {keys.FREEZE: "True" if frozen else None}
            reason, verb = ("FrozeMachineSet", "Froze") if frozen else ("UnfrozeMachineSet", "Unfroze")
            why = " due to replica overshooting" if frozen else ""
            run.report.event("Normal", reason, f"SafetyController: {verb} MachineSet {run.object.name}{why}")
        if keys.UNFREEZE in run.set.annotations:
            patch["annotations"] = {keys.UNFREEZE: None}
        if patch:
            version = run.object.resource_version
            patched = await run.objects.patch(
                MACHINE_SETS, run.object.name, {"metadata": {"uid": run.object.uid, **patch}}, version
            )
            if patched is None:
                raise Missing(f"MachineSet {run.object.name} is gone")
            run.set = MachineSet(patched)
            run.report.version = patched.resource_version
        if frozen:
            message = freezing.message(run.set, count, limit)
            run.conditions.append(Condition(status.FROZEN, freezing.REASON, message))

    async def _limits(self, run: _Run) -> freezing.Limits:
        owner = facts.controller(run.object) or {}
        at = ObjectRef(
            run.objects.ref.cluster, MACHINE_DEPLOYMENTS.id, run.object.namespace, str(owner.get("name", ""))
        )
        deployment = await run.recorder.read(at) if owner.get("kind") == "MachineDeployment" else None
        spec = deployments.spec(deployment) if deployment else None
        wanted, surge = (spec.replicas, spec.configured_surge) if spec else (None, 0)
        return freezing.limits(run.set, wanted, surge, self._settings.safety_up, self._settings.safety_down)

    async def _copy_template(self, run: _Run, owned: Sequence[MachineFacts]) -> list[MachineFacts]:
        """Copy fields of the template that change in place to existing machines."""
        wanted = facts.digest(templates.copied(run.set.template))
        for one in owned:
            if one.copied == wanted or one.failed or one.terminating:
                continue
            found = await run.objects.get(MACHINES, one.name)
            patch = templates.differences(found.spec, run.set.template) if found else {}
            if found and found.uid == one.uid and patch:
                await run.objects.patch(MACHINES, one.name, {"spec": patch}, found.resource_version)
        return list(owned)

    async def _preserve(self, run: _Run, owned: Sequence[MachineFacts]) -> list[MachineFacts]:
        """Annotate failed machines that are preserved automatically."""
        most = facts.number(run.object.spec.get("autoPreserveFailedMachineMax"))
        begun, ended = preservation.automatic(owned, most)
        changed = {}
        for one, value in [(m, preservation.AUTO) for m in begun] + [(m, None) for m in ended]:
            patch = {"metadata": {"uid": one.uid, "annotations": {keys.PRESERVE: value}}}
            patched = await run.objects.patch(MACHINES, one.name, patch, one.version)
            if patched:
                changed[one.uid] = facts.machine(patched)
        return [changed.get(one.uid, one) for one in owned]

    async def _act(
        self, run: _Run, plan: Plan, owned: list[MachineFacts], taken: set[str], created: int
    ) -> tuple[list[MachineFacts], int]:
        """Create and delete machines. A failure is reported in a condition, and retried."""
        made: list[MachineFacts] = []
        try:
            if plan.create:
                fresh, created = machines.fresh_names(run.set, plan.create, created, taken)
                await self._create(run, fresh, made)
            if plan.delete:
                await self._delete(run, plan)
                going = {one.uid for one in plan.delete}
                owned = [dataclasses.replace(o, deleting=True) if o.uid in going else o for o in owned]
        except LeaseLost:
            raise  # the status is for others to write now
        except (TransientError, PermanentError) as error:
            verb = "FailedCreate" if plan.create else "FailedDelete"
            run.conditions.append(Condition(status.FAILURE, verb, str(error)))
            run.report.event("Warning", verb, str(error))
            run.error = error
        if made:
            run.report.event("Normal", "SuccessfulCreate", f"Created Machine: {_names(made)}")
        return [*owned, *made], created

    async def _create(self, run: _Run, fresh: list[str], made: list[MachineFacts]) -> None:
        """Create in batches that double: most errors concern all machines, and stop the first batch."""
        batch = _FIRST_BATCH
        while fresh:
            now, fresh = fresh[:batch], fresh[batch:]
            with at_once():
                async with asyncio.TaskGroup() as tasks:
                    started = [tasks.create_task(self._make(run, name)) for name in now]
            outcomes = [task.result() for task in started]
            made += [one for one in outcomes if isinstance(one, MachineFacts)]
            if errors := [one for one in outcomes if not isinstance(one, MachineFacts)]:
                raise errors[0]
            batch *= 2

    async def _make(self, run: _Run, name: str) -> MachineFacts | TransientError | PermanentError:
        try:
            return facts.machine(await run.objects.create(MACHINES, machines.machine(run.set, name)))
        except (TransientError, PermanentError) as error:
            return error

    async def _delete(self, run: _Run, plan: Plan) -> None:
        with at_once():
            async with asyncio.TaskGroup() as tasks:
                started = [tasks.create_task(self._remove(run, one)) for one in plan.delete]
        if errors := [error for task in started if (error := task.result())]:
            raise errors[0]
        run.report.event("Normal", "SuccessfulDelete", f"Deleted Machine: {_names(plan.delete)}")

    async def _remove(self, run: _Run, one: MachineFacts) -> TransientError | PermanentError | None:
        try:
            await run.objects.delete(MACHINES, one.name, one.uid)
        except Conflict:
            pass  # another one of this name
        except (TransientError, PermanentError) as error:
            return error
        return None

    async def _skip_for_migration(self, run: _Run) -> Outcome:
        """The Worker is being migrated: no machine is created or deleted; the set may be deleted."""
        if run.object.deleting:
            return await self._release(run)
        again = RequeueAfter(Wish(reason=Reason.RETRY), _MIGRATION)
        return Unfinished("its Worker is being migrated: its machines stay as they are", again)

    async def _release(self, run: _Run) -> Outcome:
        patch = {"metadata": without_finalizer(run.object, keys.FINALIZER)}
        await run.objects.patch(MACHINE_SETS, run.object.name, patch, run.object.resource_version)
        return Done("removed")


def _outcome(run: _Run, owned: Sequence[MachineFacts], plan: Plan, changed: bool) -> Outcome:
    """The next run comes with an event, or when the preservation of a machine expires."""
    expiries = [(one.expiry, one.name) for one in owned if one.expiry and one.expiry > run.now]
    again = None
    if expiries:
        expiry, name = min(expiries)
        after = max(1.0, (expiry - run.now).total_seconds())
        again = RequeueAfter(Wish(reason=Reason.DUE), after, f"the preservation of Machine {name} ends then")
    if plan.held:
        return Unfinished(plan.held, again)
    return Done("ensured", again) if plan.acts or changed else Ignored(requeue=again)


def _names(found: Sequence[MachineFacts]) -> str:
    return ", ".join(one.name for one in found)
