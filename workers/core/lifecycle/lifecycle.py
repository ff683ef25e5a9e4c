"""The life cycle of extension objects: one reconcile of any extension kind.

Read the object and the last report → decide on a flow → add the finalizer → call the actuator → report →
remove the finalizer. A kind brings its actuator; it shares everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import (
    Conflict,
    Missing,
    PermanentError,
    Refused,
    Superseded,
    TransientError,
    Waiting,
    WindowboxError,
)
from windowbox.models.extensions import instant, spelled
from windowbox.models.objects import Object, merge
from workers.core import clock
from workers.core.conflictbackoff import ConflictBackoff
from workers.core.lifecycle import operations, runpredicates, statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.operations import Flow, Operation, Patch
from workers.core.lifecycle.orphancleanup import OrphanCleanup
from workers.core.lifecycle.reporting import Reporter, adds_status, same_failure
from workers.core.lifecycle.shootfacts import Blocked, ShootFacts
from workers.core.lifecycle.world import World
from workers.core.reconcile import Request
from workers.core.recorder import ChangeTracker
from workers.core.reports import with_report

logger = logging.getLogger(__name__)

SLOW_SECONDS = 1.0
"""A run that takes longer reports Processing; a shorter one reports only its end."""

_CONFLICTS = 4
_REQUEUE_AFTER = 30.0
"""Seconds until a waiting object is reconciled again, if no event requeues it."""
_UNWRITTEN_AFTER = timedelta(seconds=5)


@dataclass(frozen=True)
class _Step:
    """The decision of a run: the version of the object for the actuator, and the words for the report."""

    run: Run
    flow: Flow
    operation: Operation
    texts: statuses.OperationTexts
    request: Request
    reporter: Reporter
    adds_finalizer: bool = False
    """Whether this run has put the finalizer on the object."""


class LifeCycle:
    """Reconciles the objects of one extension kind."""

    def __init__(self, kind: Kind, actuator: Actuator, scope: runpredicates.Scope, world: World) -> None:
        self.kind = kind
        self._actuator = actuator
        self._scope = scope
        self._world = world
        self._conflicts = ConflictBackoff()
        self._orphans = OrphanCleanup(kind, actuator, scope, world)

    async def reconcile(self, request: Request) -> Outcome:
        """Decide and act on the version on the bus; after a conflict, on the API server's."""
        ref, recorder = request.ref, request.recorder
        reported = await request.reports.last()
        if reported and reported.orphans:
            await self._orphans.run(request, reported)
        found = await recorder.read(ref)
        if found is None:
            return Ignored("gone")
        object = with_report(found, reported)
        reporter = Reporter(request.reports, object)
        run = Run(ref, object, None, recorder, memo=reporter.memo, remember=reporter.remember)
        for attempt in range(_CONFLICTS):
            try:
                decided = await self._decide(run, request, reporter, live=attempt > 0)
                if not isinstance(decided, _Step):
                    outcome = decided
                elif decided.run.drift:
                    outcome = await self._repair(decided)
                else:
                    outcome = await self._act(decided)
                    if decided.adds_finalizer:
                        outcome = await self._keep_if_deleted(decided) or outcome
                break
            except Conflict:
                newest = await self._world.live(ref, recorder)
                if newest is None:
                    return Ignored("gone")
                run = dataclasses.replace(run, object=with_report(newest, reported))
                reporter.take(run.object)
        else:
            raise TransientError(f"{ref}: changed by others again and again")
        if reported and not reporter.has_reported and object.status != found.status:
            # A status is overdue: the worker may have crashed before it enqueued the patch.
            reported_at = instant(reported.patch.get("lastOperation", {}).get("lastUpdateTime"))
            if reported_at and await clock.now(recorder) - reported_at > _UNWRITTEN_AFTER:
                await request.reports.remind()
        return outcome

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> Patch:
        operation = operations.operation(found)
        flow = operations.flow(found, self.kind.finalizer, migrates=self.kind.migrates)
        now, texts = await clock.now(request.recorder), self.kind.descriptions.of(flow)
        return statuses.failed(operation, texts, TransientError(event.note), found.generation, now)

    async def _decide(self, run: Run, request: Request, reporter: Reporter, *, live: bool) -> _Step | Outcome:
        """The step for this version of the object, or the outcome if there is none. Adds the finalizer."""
        wish, object = request.wish, self.kind.without_unknown_operation(run.object)
        if not runpredicates.responsible(object, self._scope):
            return Ignored("not ours")
        flow = operations.flow(object, self.kind.finalizer, migrates=self.kind.migrates)
        if flow is Flow.WAIT:
            return Unfinished("waiting for the state that a client restores")
        shoot, waiting = await self._shoot(run, request, flow)
        if waiting:
            return waiting
        run = dataclasses.replace(run, object=object, shoot=shoot)
        has_finalizer = self.kind.finalizer in object.finalizers
        if flow is Flow.MIGRATE and self.kind.migrates_only_with_finalizer and not has_finalizer:
            return Ignored("an object without our finalizer is not migrated")
        asked = runpredicates.asked(object)
        unasked = wish.drift and not (wish.insist or wish.changed or object.deleting or asked)
        if unasked and (seconds := await self._conflicts.noted(run.ref, run.recorder)):
            note = "backed off: another program reverts the repairs again and again"
            return Unfinished(note, RequeueAfter(Wish(reason=Reason.DRIFT), seconds))
        if runpredicates.only_annotated(object) and not wish.asked:
            # Requeued as a client's request, which is repeated if it is cut off: the annotation is removed
            # first, and a crash must not lose it.
            again = RequeueAfter(wish | Wish(reason=Reason.EVENT), 0)
            return Unfinished("a client asks for a run", again)
        if not runpredicates.needs_run(object, wish, self._scope):
            if not wish.verify or flow is not Flow.RECONCILE:
                return Ignored()
            _require_live(live, run)
            if wish.drift and object.status.get("observedGeneration") != object.generation:
                return Ignored("a client has to request a run for the new spec first")
            texts = self.kind.descriptions.of(flow)
            repair = dataclasses.replace(run, drift=True)
            return _Step(repair, flow, Operation.RECONCILE, texts, request, reporter)
        reporter.asked = asked
        begun = await self._begin(run, flow, live)
        if begun is None:
            return Ignored("gone")
        if flow is Flow.SKIP:
            return Ignored("nothing is ours to delete, or the object was migrated")
        reporter.take(begun.object)
        operation = Operation.DELETE if flow is Flow.DELETE else operations.operation(begun.object)
        added = not has_finalizer and self.kind.finalizer in begun.object.finalizers
        return _Step(begun, flow, operation, self.kind.descriptions.of(flow), request, reporter, added)

    async def _shoot(
        self, run: Run, request: Request, flow: Flow
    ) -> tuple[ShootFacts | None, Outcome | None]:
        """The object's Shoot, and the outcome if the object has to wait for it."""
        if self.kind.shoot is Need.NEVER:
            return None, None
        required = self.kind.shoot is Need.REQUIRED
        shoot, blocked = await self._world.shoot(run.ref, run.recorder, required=required)
        if blocked is Blocked.FAILED and self.kind.stops_on_failed_shoot:
            # The owner's retry repeats requests of clients, but not checks for drift.
            again = request.retry_same(PermanentError(blocked)) if request.wish.drift else None
            return shoot, Unfinished(blocked, again)
        if blocked is Blocked.UNKNOWN and not (flow is Flow.DELETE and self.kind.deletes_without_shoot):
            return shoot, Unfinished(blocked, request.retry(TransientError(blocked)))
        return shoot, None

    async def _begin(self, run: Run, flow: Flow, live: bool) -> Run | None:
        """Add the finalizer and remove the operation annotation. None if the object is gone."""
        patch = operations.begin_patch(run.object, self.kind.finalizer, flow)
        if patch is None:
            if flow is not Flow.SKIP:
                _require_live(live, run)
            return run
        try:
            passing = "" if flow is Flow.SKIP else run.object.uid
            metadata = await self._world.patch(run.ref, patch, run.recorder, passing=passing)
        except Missing:
            return None
        held = self.kind.without_unknown_operation(Object({**run.object.raw, "metadata": metadata}))
        return dataclasses.replace(run, object=held)

    async def _act(self, step: _Step) -> Outcome:
        """Call the actuator, report the result, and remove the finalizer after a deletion."""
        flow, object, tracker = step.flow, step.run.object, ChangeTracker(step.run.recorder)
        run = dataclasses.replace(step.run, recorder=tracker)
        extra: Status = {}
        try:
            async with self._reporting_progress(step), self._supervised(step, tracker):
                match flow:
                    case Flow.DELETE if self._actuator.forced(run):
                        await self._actuator.force_delete(run)
                    case Flow.DELETE:
                        await self._actuator.delete(run)
                    case Flow.MIGRATE:
                        await self._actuator.migrate(run)
                    case Flow.RESTORE:
                        extra = await self._actuator.restore(run)
                    case _:
                        extra = await self._actuator.reconcile(run)
        except Superseded:
            raise
        except Waiting as waiting:
            return await self._wait(step, waiting)
        except WindowboxError as error:
            return await self._fail(step, error)
        if flow is not Flow.DELETE or len(object.finalizers) > 1:
            now = statuses.report_time(object, await clock.now(step.run.recorder))
            patch = {**statuses.succeeded(step.operation, step.texts, object.generation, now), **extra}
            await step.reporter.report(patch | self._conditions(step, True, now))
        if flow is Flow.RESTORE and _shows_another_success(object):
            # The event of the report brings the run that removes the annotation. Without the annotation, a
            # client would take the success of the migration for ours, until the report is written.
            return Done(str(step.operation), RequeueAfter(Wish(reason=Reason.RETRY), _REQUEUE_AFTER))
        await self._finish(step.run, flow)
        waited = object.last_operation.get("state") not in (None, "Succeeded")
        return Done(str(step.operation), self._resync(step.run, flow), waited)

    async def _repair(self, step: _Step) -> Outcome:
        """Repair drift. Only changes of the object's status are reported."""
        object, reporter, tracker = step.run.object, step.reporter, ChangeTracker(step.run.recorder)
        try:
            async with self._supervised(step, tracker):
                extra = await self._actuator.reconcile(dataclasses.replace(step.run, recorder=tracker))
        except Waiting as waiting:
            again = RequeueAfter(Wish(reason=Reason.DRIFT), waiting.retry_after or _REQUEUE_AFTER)
            return Unfinished(str(waiting), again)
        except (TransientError, PermanentError) as error:
            logger.info("%s: drift could not be repaired: %s", step.run.ref, error)
            return Failed(str(error), step.request.retry_same(error))
        # A changed memo is stored with a report; without an earlier one, the next report is early enough.
        last = reporter.last
        if merge(object.status, extra) != object.status or (last and last.memo not in ({}, reporter.memo)):
            # No client has asked, so the last operation stays; so does what is reported and not written yet.
            fields = ("lastOperation", "lastError", *(last.patch if last else {}))
            kept = {name: object.status.get(name) for name in fields}
            await reporter.report({**kept, "observedGeneration": object.generation, **extra})
        return Done("checked for drift", self._resync(step.run, Flow.RECONCILE))

    async def _keep_if_deleted(self, step: _Step) -> Outcome | None:
        """Have the owned objects removed if the object was deleted although this run added the finalizer."""
        run = step.run
        found = await run.recorder.read(run.ref)
        if found and found.uid == run.object.uid:
            return None  # if the bus announces the deletion only later, the mapping finds our report
        await step.request.reports.keep_orphan(run.object)
        again = RequeueAfter(Wish(reason=Reason.RETRY).insisting(), 0)
        return Unfinished("deleted during the run: its owned objects are removed next", again)

    @contextlib.asynccontextmanager
    async def _supervised(self, step: _Step, tracker: ChangeTracker) -> AsyncIterator[None]:
        """Limit the time of the actuator, and count its repairs for the backoff."""
        try:
            async with asyncio.timeout(self.kind.deadline):
                yield
        except TimeoutError as error:
            raise TransientError(f"not finished within {self.kind.deadline:.0f} s") from error
        finally:
            if tracker.changed and step.request.wish.drift:
                self._conflicts.repaired(step.run.ref)

    @contextlib.asynccontextmanager
    async def _reporting_progress(self, step: _Step) -> AsyncIterator[None]:
        """Report Processing if the step takes longer than a second, unless the status shows it already."""
        object, reporter = step.run.object, step.reporter
        last = object.last_operation
        if (last.get("type"), last.get("state")) == (str(step.operation), "Processing"):
            yield
            return
        announcing: list[asyncio.Task[None]] = []

        async def report() -> None:
            patch = statuses.processing(step.operation, step.texts, await step.run.recorder.time())
            await reporter.report(patch, effect=False)

        def announce() -> None:
            announcing.append(asyncio.create_task(report(), name=f"announce {object.name}"))

        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, announce)
        try:
            yield
        finally:
            timer.cancel()
            error = None
            if announcing:
                # Never cancelled: after a report that was cut off, the next expected sequence is unknown.
                await asyncio.wait(announcing)
                # asyncio logs an exception that is never retrieved.
                error = None if announcing[0].cancelled() else announcing[0].exception()
        if isinstance(error, Superseded):
            raise error

    async def _wait(self, step: _Step, waiting: Waiting) -> Outcome:
        """Report once what the object waits for. An event requeues the object, or else a timer."""
        run, reporter = step.run, step.reporter
        now = await clock.now(run.recorder)
        patch = statuses.waiting(step.operation, step.texts, str(waiting), now)
        last, new = run.object.last_operation, patch["lastOperation"]
        unchanged = all(last.get(name) == new[name] for name in ("type", "state", "description"))
        since = instant(last.get("lastUpdateTime")) if unchanged else None
        text = f"{waiting}, for more than {self.kind.deadline:.0f} s"
        error = TransientError(text, retry_after=_REQUEUE_AFTER, codes=waiting.codes)
        error.status = waiting.status
        failed = statuses.failed(step.operation, step.texts, error, run.object.generation, now)
        # An error stays one until its text changes, or a client requests a run.
        stays = same_failure(run.object, failed) and not reporter.asked
        if stays or (since and now - since > timedelta(seconds=self.kind.deadline)):
            return await self._fail(step, error)
        if reporter.asked or not unchanged or adds_status(waiting, run.object):
            if since and not reporter.asked:  # a changed condition alone is no progress
                new["lastUpdateTime"] = spelled(since)
            await reporter.report({**patch, **waiting.status})
        again = Wish(reason=Reason.DRIFT if step.request.wish.drift else Reason.RETRY)
        return Unfinished(str(waiting), RequeueAfter(again, waiting.retry_after or _REQUEUE_AFTER))

    async def _fail(self, step: _Step, error: WindowboxError) -> Outcome:
        """Report the error, unless the status shows it already."""
        run, reporter = step.run, step.reporter
        now = statuses.report_time(run.object, await clock.now(run.recorder))
        patch = statuses.failed(step.operation, step.texts, error, run.object.generation, now)
        patch |= {**self._conditions(step, False, now), **error.status}
        news = not same_failure(run.object, patch) or adds_status(error, run.object)
        if reporter.has_reported or reporter.asked or news:
            note = patch["lastError"]["description"]
            event = EventIntent(type="Warning", reason=f"{step.flow.name.capitalize()}Error", note=note)
            await reporter.report(patch, event)
        logger.info("%s: %s", run.ref, patch["lastError"]["description"])
        return Failed(str(error), step.request.retry(error))

    async def _finish(self, run: Run, flow: Flow) -> None:
        """Remove the finalizer, and the annotation of a migration or restore, after the report."""
        object = run.object
        for _ in range(_CONFLICTS):
            patch = operations.finish_patch(
                object, self.kind.finalizer, flow, strips_all_finalizers=self.kind.strips_all_finalizers
            )
            if patch is None:
                return
            try:
                await self._world.patch(run.ref, patch, run.recorder)
                return
            except Missing:
                return
            except (Conflict, Refused) as error:
                live = await self._world.live(run.ref, run.recorder)
                if live is None or live.uid != object.uid:
                    return  # another object has the name now
                if isinstance(error, Refused):
                    raise
                object = live
        raise TransientError(f"{run.ref}: changed by others again and again")

    def _resync(self, run: Run, flow: Flow) -> RequeueAfter | None:
        """The requeue after a success: the kind's resync, or the actuator's `dues`."""
        if self.kind.resync and flow is Flow.RECONCILE:
            run.dues.append((self.kind.resync, "no failure: it is reconciled periodically"))
        return RequeueAfter(Wish(reason=Reason.DRIFT), *min(run.dues)) if run.dues else None

    def _conditions(self, step: _Step, succeeded: bool, now: datetime) -> Patch:
        conditions = self._actuator.conditions(step.run.object, step.flow, succeeded, now)
        return {} if conditions is None else {"conditions": conditions}


def _shows_another_success(restored: Object) -> bool:
    """Whether the status of an object that is restored says that its migration succeeded."""
    last = restored.last_operation
    return last.get("state") == "Succeeded" and last.get("type") != str(Operation.RESTORE)


def _require_live(live: bool, run: Run) -> None:
    """Raise Conflict unless the object was read from the API server.

    Without a patch that carries the version that was read, a bus that was rolled back would apply old specs.
    """
    if not live:
        raise Conflict(f"{run.ref}: has to be read from the API server first")
