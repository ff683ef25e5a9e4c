"""The reconciler of MachineSets: as many Machines as `replicas` asks for, and a status that counts them."""

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
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock
from workers.core.reconcile import Request
from workers.core.recorder import Recorder, at_once
from workers.machines import deployments, facts, fence, preservation, templates
from workers.machines.facts import MachineFacts
from workers.machines.fence import Held
from workers.machines.machineobjects import MachineObjects, with_finalizer, without_finalizer
from workers.machines.nodes import Nodes
from workers.machines.reporting import StatusReport
from workers.machines.set import setplan
from workers.machines.set.setplan import Claims, Condition, Plan
from workers.machines.sets import MachineSet
from workers.machines.views import MachineViews

_CREATED = "created"
"""In the memo: the number of machines that the set has created; the next one is named after it."""
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


class MachineSetReconciler:
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
        now = await clock.now(recorder)
        lease = await fence.claim(self._clusters, ref, recorder, now)
        if isinstance(lease, Held):
            return Unfinished(str(lease), RequeueAfter(Wish(reason=Reason.RETRY), max(1.0, lease.remaining)))
        report = StatusReport(found, request.reports)
        await report.begin()
        if not found.deleting and (reason := setplan.invalid(owner, self._settings.max_replicas)):
            if not request.wish.reported:
                report.event("Warning", "InvalidSpec", reason)
                await report.end({})
            return Failed(reason)
        objects = MachineObjects(self._clusters, ref, recorder, lease)
        run = _Run(owner, objects, report, recorder, now)
        return await self._reconcile(run)

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        return {}  # the Event says it

    async def _reconcile(self, run: _Run) -> Outcome:
        if run.object.deleting and keys.FINALIZER not in run.object.finalizers:
            return Ignored()
        claimed = setplan.claims(run.object, await self._views.machines(run.objects.ref, run.recorder))
        await self._claim(run, claimed)
        owned = [*claimed.owned, *claimed.adopted]
        await self._write_metadata(run, owned)
        if not run.object.deleting:
            owned = await self._update_machines(run, owned)
        plan = await self._plan(run, owned)
        created = int(run.report.memo.get(_CREATED, 0))
        if plan.acts or (run.object.deleting and not owned):
            # The bus may be behind the last actions of this set: read the API server before it acts.
            live = await run.objects.get(MACHINE_SETS, run.object.name)
            seen = (run.object.uid, run.object.generation, run.object.deleting)
            if live is None or (live.uid, live.generation, live.deleting) != seen:
                raise Conflict(f"MachineSet {run.object.name} has changed meanwhile", retry_after=0.2)
            if await run.objects.are_leaving():
                # The other seed takes the machines over: none is created or deleted; the set may be deleted.
                if run.object.deleting:
                    return await self._release(run)
                later = RequeueAfter(Wish(reason=Reason.RETRY), _MIGRATION)
                return Unfinished("its Worker is being migrated: its machines stay as they are", later)
            # Decide again: the API shows machines of a former run that the bus does not show yet.
            everything = await run.objects.machines()
            owned = setplan.claims(run.object, everything).owned
            plan = await self._plan(run, owned)
            owned, created = await self._act(run, plan, owned, {one.name for one in everything}, created)
        if run.object.deleting and not owned:
            return await self._release(run)
        shown = setplan.status(run.set, owned, run.conditions, run.report.shown, run.now)
        # The memo continues the numbering of names.
        changed = await run.report.end(shown, {_CREATED: created} if created else None)
        if run.error:
            raise run.error
        # The next run comes with an event, or when the preservation of a machine expires.
        again: RequeueAfter | None = None
        if expiries := [(one.expiry, one.name) for one in owned if one.expiry and one.expiry > run.now]:
            expiry, name = min(expiries)
            after = max(1.0, (expiry - run.now).total_seconds())
            again = RequeueAfter(
                Wish(reason=Reason.DUE), after, f"the preservation of Machine {name} ends then"
            )
        if plan.held:
            return Unfinished(plan.held, again)
        return Done("ensured", again) if plan.acts or changed else Ignored(requeue=again)

    async def _plan(self, run: _Run, owned: Sequence[MachineFacts]) -> Plan:
        nodes = Nodes(self._clusters, run.objects.ref, run.recorder, run.objects.fence)
        preserved: dict[str, str | None] = {}
        for one in owned:
            if one.failed and one.node:
                node = await nodes.get(one.node)
                preserved[one.node] = str(node.annotations.get(keys.PRESERVE, "")) if node else None
        return setplan.plan(run.set, owned, preserved, run.now)

    async def _claim(self, run: _Run, claimed: Claims) -> None:
        """Adopt and release machines."""
        if claimed.adopted:
            # The garbage collector deletes machines that a deleted set adopts.
            live = await run.objects.get(MACHINE_SETS, run.object.name)
            if live is None or live.uid != run.object.uid or live.deleting:
                raise Conflict(f"{run.object.name} has changed meanwhile", retry_after=0.2)
        for one in claimed.adopted:
            owner = facts.owner_reference(run.object, "MachineSet")
            patch = {"metadata": {"uid": one.uid, "ownerReferences": [owner]}}
            await run.objects.patch(MACHINES, one.name, patch, one.version)
        for one in claimed.released:
            found = await run.objects.get(MACHINES, one.name)
            if found is None or found.uid != one.uid:
                continue
            owners = found.metadata.get("ownerReferences") or []
            kept = [owner for owner in owners if mapping(owner).get("uid") != run.object.uid]
            freed = {"metadata": {"uid": one.uid, "ownerReferences": kept or None}}
            await run.objects.patch(MACHINES, one.name, freed, found.resource_version)

    async def _write_metadata(self, run: _Run, owned: Sequence[MachineFacts]) -> None:
        """Set the finalizer and the freeze label in one write."""
        owner = facts.controller(run.object) or {}
        deployment = None
        if owner.get("kind") == "MachineDeployment":
            name = str(owner.get("name", ""))
            deployment = await run.recorder.read(
                run.objects.ref._replace(kind=MACHINE_DEPLOYMENTS.id, name=name)
            )
        spec = deployments.spec(deployment) if deployment else None
        wanted, surge = (spec.replicas, spec.configured_surge) if spec else (None, 0)
        safety_up, safety_down = self._settings.safety_up, self._settings.safety_down
        limit = setplan.freeze_limits(run.set, wanted, surge, safety_up, safety_down)
        # Gardener's own controller counts machines that are being deleted, too, so that a large set that
        # shrinks is frozen, and its Worker fails, until they are gone.
        count = setplan.fully_labeled(run.set, [one for one in owned if not one.terminating])
        frozen = setplan.is_frozen(run.set, count, limit)
        patch = {} if run.object.deleting else with_finalizer(run.object.metadata, keys.FINALIZER)
        if frozen != run.set.frozen:
            patch["labels"] = {keys.FREEZE: "True" if frozen else None}
            reason, verb = ("FrozeMachineSet", "Froze") if frozen else ("UnfrozeMachineSet", "Unfroze")
            why = " due to replica overshooting" if frozen else ""
            run.report.event("Normal", reason, f"SafetyController: {verb} MachineSet {run.object.name}{why}")
        if keys.UNFREEZE in run.set.annotations:
            patch["annotations"] = {keys.UNFREEZE: None}
        if patch:
            whole = {"metadata": {"uid": run.object.uid, **patch}}
            version = run.object.resource_version
            patched = await run.objects.patch(MACHINE_SETS, run.object.name, whole, version)
            if patched is None:
                raise Missing(f"MachineSet {run.object.name} is gone")
            run.set = MachineSet(patched)
            run.report.version = patched.resource_version
        if frozen:
            run.conditions.append(setplan.frozen(run.set, count, limit))

    async def _update_machines(self, run: _Run, owned: Sequence[MachineFacts]) -> list[MachineFacts]:
        """Copy template fields that change in place; annotate automatically preserved machines."""
        wanted = facts.digest(templates.copied(run.set.template))
        for one in owned:
            # The digest of the bus saves a read for each machine that has all fields.
            if one.copied == wanted or one.failed or one.terminating:
                continue
            found = await run.objects.get(MACHINES, one.name)
            patch = templates.differences(found.spec, run.set.template) if found else {}
            if found and found.uid == one.uid and patch:
                await run.objects.patch(MACHINES, one.name, {"spec": patch}, found.resource_version)
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
                fresh, created = setplan.fresh_names(run.set, plan.create, created, taken)
                # Batches double: most errors concern all machines, and stop the first batch, which has one.
                batch = 1
                while fresh:
                    now, fresh = fresh[:batch], fresh[batch:]
                    bodies = [setplan.machine(run.set, name) for name in now]
                    with at_once():
                        results = await asyncio.gather(
                            *(run.objects.create(MACHINES, body) for body in bodies), return_exceptions=True
                        )
                    made += [facts.machine(one) for one in results if isinstance(one, Object)]
                    _raise_first(results)
                    batch *= 2
            if plan.delete:
                with at_once():
                    deleted = await asyncio.gather(
                        *(run.objects.delete(MACHINES, one.name, one.uid) for one in plan.delete),
                        return_exceptions=True,
                    )
                # After a Conflict, the name belongs to another machine.
                _raise_first([one for one in deleted if not isinstance(one, Conflict)])
                run.report.event("Normal", "SuccessfulDelete", f"Deleted Machine: {_names(plan.delete)}")
                going = {one.uid for one in plan.delete}
                owned = [dataclasses.replace(o, deleting=True) if o.uid in going else o for o in owned]
        except LeaseLost:
            raise  # another program writes the status now
        except (TransientError, PermanentError) as error:
            verb = "FailedCreate" if plan.create else "FailedDelete"
            run.conditions.append(Condition(setplan.FAILURE, verb, str(error)))
            run.report.event("Warning", verb, str(error))
            run.error = error
        if made:
            run.report.event("Normal", "SuccessfulCreate", f"Created Machine: {_names(made)}")
        return [*owned, *made], created

    async def _release(self, run: _Run) -> Outcome:
        patch = {"metadata": without_finalizer(run.object, keys.FINALIZER)}
        await run.objects.patch(MACHINE_SETS, run.object.name, patch, run.object.resource_version)
        return Done("removed")


def _raise_first(results: Sequence[object]) -> None:
    """Raise the first error."""
    for one in results:
        if isinstance(one, BaseException):
            raise one


def _names(found: Sequence[MachineFacts]) -> str:
    return ", ".join(one.name for one in found)
