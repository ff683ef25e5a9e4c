"""One run of an extension object: read, decide, set the finalizer, act, report, remove the finalizer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from bus.messages import EventIntent, Reason, Result, StatusIntent, Wish
from bus.workqueue.pool import Outcome, RequeueAfter
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
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.core import clock
from workers.core.conflictbackoff import ConflictBackoff
from workers.core.lifecycle import operations, predicates, requeue, statuses
from workers.core.lifecycle.kinds import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.operations import Flow, Operation, Patch
from workers.core.lifecycle.orphans import OrphanCleanup
from workers.core.lifecycle.reporting import Reporter, adds_status, same_failure, with_report
from workers.core.lifecycle.shoots import Blocked, ShootFacts
from workers.core.lifecycle.world import World
from workers.core.recorder import ChangeTracker, Recorder

logger = logging.getLogger(__name__)

SLOW_SECONDS = 1.0
"""A run that takes longer reports Processing; a shorter one reports only its end."""

_CONFLICTS = 4
_REQUEUE_AFTER = 30.0
"""Seconds until a waiting object is reconciled again, if no event requeues it."""
_UNWRITTEN_AFTER = timedelta(seconds=5)


class LifeCycle:
    """Reconciles the objects of one extension kind: what all kinds have in common."""

    def __init__(self, kind: Kind, actuator: Actuator, scope: predicates.Scope, world: World) -> None:
        self.kind = kind
        self._actuator = actuator
        self._scope = scope
        self._world = world
        self._conflicts = ConflictBackoff()
        self._orphans = OrphanCleanup(kind, actuator, scope, world)

    async def run(self, ref: ObjectRef, wish: Wish, recorder: Recorder) -> Outcome:
        """Reconcile the object as it is now, whatever the wish was made for."""
        try:
            reported, sequence = await self._world.reported(ref, recorder)
            if reported and reported.orphans:
                sequence = await self._orphans.run(ref, wish, recorder, reported, sequence)
            found = await recorder.read(ref)
            if found is None:
                return Outcome(Result.GONE)
            object = with_report(found, reported)
            reporter = Reporter(self._world, ref, recorder, object, sequence, reported)
            run = Run(ref, object, None, recorder, memo=reporter.memo, remember=reporter.remember)
            outcome = await self._decide_on_newest(run, wish, reporter, reported)
            if reported and not reporter.has_reported and object.status != found.status:
                await self._remind(ref, reported, recorder)
            return outcome
        except TransientError as error:
            # The API is unreachable. A redelivered item would count as one that crashed its worker.
            return Outcome(Result.WAITING, requeue.insist(wish, error, self._world.jitter()), str(error))

    async def quarantine(self, ref: ObjectRef, recorder: Recorder) -> None:
        """Report that the object is in quarantine, because its runs crashed their process."""
        found = await recorder.read(ref)
        if found is None:
            return
        reported, sequence = await self._world.reported(ref, recorder)
        object = with_report(found, reported)
        operation = operations.operation(object)
        flow = operations.flow(object, self.kind.finalizer, migrates=self.kind.migrates)
        error = TransientError(
            "set aside, because working on this object ended the worker process three times in a row; "
            "it is taken up again when the object changes, or in ten minutes"
        )
        now = await clock.now(recorder)
        patch = statuses.failed(operation, self.kind.descriptions.of(flow), error, object.generation, now)
        event = EventIntent(type="Warning", reason="SetAside", note=str(error))
        await Reporter(self._world, ref, recorder, object, sequence, reported).report(patch, event)

    async def _decide_on_newest(
        self, run: Run, wish: Wish, reporter: Reporter, reported: StatusIntent | None
    ) -> Outcome:
        """Decide on the version on the bus; after a conflict, on the API server's."""
        live = False
        for _ in range(_CONFLICTS):
            try:
                return await self._decide(run, wish, reporter, live)
            except Conflict:
                found = await self._world.live(run.ref, run.recorder)
                if found is None:
                    return Outcome(Result.GONE)
                run, live = dataclasses.replace(run, object=with_report(found, reported)), True
                reporter.take(run.object)
        raise TransientError(f"{run.ref}: changed by others again and again")

    async def _remind(self, ref: ObjectRef, reported: StatusIntent, recorder: Recorder) -> None:
        """Requeue a status that is overdue: the worker may have crashed before it enqueued the patch."""
        reported_at = instant(reported.patch.get("lastOperation", {}).get("lastUpdateTime"))
        if reported_at and await clock.now(recorder) - reported_at > _UNWRITTEN_AFTER:
            await self._world.remind(ref, recorder)

    async def _decide(self, run: Run, wish: Wish, reporter: Reporter, live: bool) -> Outcome:
        object = self.kind.without_unknown_operation(run.object)
        if not predicates.responsible(object, self._scope):
            return Outcome(Result.NOT_OURS)
        flow = operations.flow(object, self.kind.finalizer, migrates=self.kind.migrates)
        if flow is Flow.WAIT:
            return Outcome(Result.WAITING_FOR_STATE)
        shoot, blocked = await self._shoot(run.ref, run.recorder)
        if blocked is Blocked.FAILED:
            # The owner's retry repeats requests of clients, but not checks for drift.
            again = (
                requeue.same_wish(wish, PermanentError(blocked), self._world.jitter()) if wish.drift else None
            )
            return Outcome(Result.BLOCKED, again, blocked)
        if blocked is Blocked.UNKNOWN and not (flow is Flow.DELETE and self.kind.deletes_without_shoot):
            return Outcome(
                Result.WAITING, requeue.retry(wish, TransientError(blocked), self._world.jitter()), blocked
            )
        run = dataclasses.replace(run, object=object, shoot=shoot)
        has_finalizer = self.kind.finalizer in object.finalizers
        if flow is Flow.MIGRATE and self.kind.migrates_only_with_finalizer and not has_finalizer:
            return Outcome(Result.NOTHING_TO_DO)
        if seconds := await self._backed_off(run, wish):
            note = "backed off: another program reverts the repairs again and again"
            return Outcome(Result.WAITING, RequeueAfter(Wish(reason=Reason.DRIFT), seconds), note)
        if predicates.only_annotated(object) and not wish.asked:
            return requeue.as_request(wish)  # the annotation is removed first: a crash must not lose it
        if not self._needs_run(object, wish):
            if wish.verify and flow is Flow.RECONCILE:
                _require_live(live, run)
                return await self._repair(run, wish, reporter)
            return Outcome(Result.NOTHING_TO_DO)
        reporter.asked = predicates.asked(object)
        begun = await self._begin(run, flow, live)
        if begun is None:
            return Outcome(Result.GONE)
        if flow is Flow.SKIP:
            return Outcome(Result.SKIPPED)
        reporter.object = begun.object
        outcome = await self._act(begun, flow, wish, reporter)
        if not has_finalizer and await self._vanished(begun):
            await self._world.keep_orphan(run.ref, begun.object)
            return Outcome(Result.GONE, requeue.of_orphan(), outcome.note)
        return outcome

    async def _vanished(self, run: Run) -> bool:
        """Whether the object was deleted although this run has added the finalizer.

        If the deletion comes to the bus only later, the mapping finds our report.
        """
        found = await run.recorder.read(run.ref)
        return self.kind.finalizer in run.object.finalizers and (found is None or found.uid != run.object.uid)

    async def _backed_off(self, run: Run, wish: Wish) -> float:
        """Seconds of backoff, if another program undoes our repairs again and again."""
        requested = run.object.deleting or predicates.asked(run.object)
        if not wish.drift or wish.insist or wish.changed or requested:
            return 0.0
        return await self._conflicts.noted(run.ref, run.recorder)

    async def _shoot(self, ref: ObjectRef, recorder: Recorder) -> tuple[ShootFacts | None, Blocked | None]:
        if self.kind.shoot is Need.NEVER:
            return None, None
        found, hold = await self._world.shoot(ref, recorder, required=self.kind.shoot is Need.REQUIRED)
        return found, None if hold is Blocked.FAILED and not self.kind.stops_on_failed_shoot else hold

    def _needs_run(self, object: Object, wish: Wish) -> bool:
        if wish.insist or predicates.wants_run(object) or predicates.overdue(object):
            return True
        if not self._scope.ignore_operation_annotation:
            return False
        # Then an event is a new generation, or a change of the Shoot.
        return wish.changed or object.status.get("observedGeneration") != object.generation

    async def _begin(self, run: Run, flow: Flow, live: bool) -> Run | None:
        """Add the finalizer and remove the operation annotation. None if the object is gone."""
        patch = operations.begin_patch(run.object, self.kind.finalizer, flow)
        if patch is None:
            if flow is not Flow.SKIP:
                _require_live(live, run)
            return run
        try:
            metadata = await self._world.patch(run.ref, patch, run.recorder)
        except Missing:
            return None
        held = self.kind.without_unknown_operation(Object({**run.object.raw, "metadata": metadata}))
        return dataclasses.replace(run, object=held)

    async def _act(self, run: Run, flow: Flow, wish: Wish, reporter: Reporter) -> Outcome:
        operation = Operation.DELETE if flow is Flow.DELETE else operations.operation(run.object)
        phrases = self.kind.descriptions.of(flow)
        try:
            async with self._reporting_progress(operation, phrases, run.object, reporter):
                extra = await self._actuate(run, flow, wish)
        except Superseded:
            raise
        except Waiting as waiting:
            return await self._wait(run, flow, operation, waiting, wish, reporter)
        except WindowboxError as error:
            return await self._fail(run, flow, operation, error, wish, reporter)
        if flow is not Flow.DELETE or len(run.object.finalizers) > 1:
            now = statuses.report_time(run.object, await clock.now(run.recorder))
            patch = {**statuses.succeeded(operation, phrases, run.object.generation, now), **extra}
            patch |= self._conditions(run.object, flow, True, now)
            await reporter.report(patch)
        await self._finish(run, flow)
        again = self._resync(run, flow)
        return Outcome(Result.SUCCEEDED, again, str(operation))

    def _resync(self, run: Run, flow: Flow) -> RequeueAfter | None:
        """The requeue after a success: the kind's resync, or the actuator's `dues`."""
        if self.kind.resync and flow is Flow.RECONCILE:
            run.dues.append((self.kind.resync, "no failure: it is reconciled periodically"))
        return RequeueAfter(Wish(reason=Reason.DRIFT), *min(run.dues)) if run.dues else None

    async def _actuate(self, run: Run, flow: Flow, wish: Wish) -> Status:
        """Call the actuator, within the deadline. Returns what it adds to the status."""
        tracker = ChangeTracker(run.recorder)
        run = dataclasses.replace(run, recorder=tracker)
        try:
            async with asyncio.timeout(self.kind.deadline):
                match flow:
                    case Flow.DELETE if self._actuator.forced(run):
                        await self._actuator.force_delete(run)
                    case Flow.DELETE:
                        await self._actuator.delete(run)
                    case Flow.MIGRATE:
                        await self._actuator.migrate(run)
                    case Flow.RESTORE:
                        return await self._actuator.restore(run)
                    case _:
                        return await self._actuator.reconcile(run)
                return {}
        except TimeoutError as error:
            raise TransientError(f"not finished within {self.kind.deadline:.0f} s") from error
        finally:
            if tracker.changed and wish.drift:
                self._conflicts.repaired(run.ref)

    @contextlib.asynccontextmanager
    async def _reporting_progress(
        self,
        operation: Operation,
        phrases: statuses.OperationTexts,
        object: Object,
        reporter: Reporter,
    ) -> AsyncIterator[None]:
        """Tell those who watch that something is being done, if it takes a while and they do not know."""
        last = object.last_operation
        if (last.get("type"), last.get("state")) == (str(operation), "Processing"):
            yield
            return
        announcing: list[asyncio.Task[None]] = []

        def announce() -> None:
            patch = statuses.processing(operation, phrases, datetime.now(UTC))
            report = reporter.report(patch, effect=False)
            announcing.append(asyncio.create_task(report, name=f"announce {object.name}"))

        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, announce)
        try:
            yield
        finally:
            timer.cancel()
            error = None
            if announcing:
                # Never cancelled: of a report half sent nobody could tell whether the next has to expect it.
                await asyncio.wait(announcing)
                # Looked at whatever became of the run: what nobody looks at is logged as a bug.
                error = None if announcing[0].cancelled() else announcing[0].exception()
        if isinstance(error, Superseded):
            raise error

    async def _wait(
        self,
        run: Run,
        flow: Flow,
        operation: Operation,
        waiting: Waiting,
        wish: Wish,
        reporter: Reporter,
    ) -> Outcome:
        """Report once what is waited for. An event requeues the object, or else a timer."""
        now, phrases = await clock.now(run.recorder), self.kind.descriptions.of(flow)
        patch = statuses.waiting(operation, phrases, str(waiting), now)
        last, new = run.object.last_operation, patch["lastOperation"]
        unchanged = all(last.get(name) == new[name] for name in ("type", "state", "description"))
        since = instant(last.get("lastUpdateTime")) if unchanged else None
        text = f"{waiting}, for more than {self.kind.deadline:.0f} s"
        error = TransientError(text, retry_after=_REQUEUE_AFTER, codes=waiting.codes)
        error.status = waiting.status
        failed = statuses.failed(operation, phrases, error, run.object.generation, now)
        # An error stays one until its text changes, or a client requests a run.
        stays = same_failure(run.object, failed) and not reporter.asked
        if stays or (since and now - since > timedelta(seconds=self.kind.deadline)):
            return await self._fail(run, flow, operation, error, wish, reporter)
        if reporter.asked or not unchanged or adds_status(waiting, run.object):
            if since and not reporter.asked:  # a changed condition alone is no progress
                new["lastUpdateTime"] = spelled(since)
            await reporter.report({**patch, **waiting.status})
        again = Wish(reason=Reason.DRIFT if wish.drift else Reason.RETRY)
        return Outcome(
            Result.WAITING, RequeueAfter(again, waiting.retry_after or _REQUEUE_AFTER), str(waiting)
        )

    async def _fail(
        self,
        run: Run,
        flow: Flow,
        operation: Operation,
        error: WindowboxError,
        wish: Wish,
        reporter: Reporter,
    ) -> Outcome:
        now = statuses.report_time(run.object, await clock.now(run.recorder))
        phrases = self.kind.descriptions.of(flow)
        patch = statuses.failed(operation, phrases, error, run.object.generation, now)
        patch |= {**self._conditions(run.object, flow, False, now), **error.status}
        news = not same_failure(run.object, patch) or adds_status(error, run.object)
        if reporter.has_reported or reporter.asked or news:
            note = patch["lastError"]["description"]
            event = EventIntent(type="Warning", reason=f"{flow.name.capitalize()}Error", note=note)
            await reporter.report(patch, event)
        logger.info("%s: %s", run.ref, patch["lastError"]["description"])
        return Outcome(Result.ERROR, requeue.retry(wish, error, self._world.jitter()), str(error))

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

    async def _repair(self, run: Run, wish: Wish, reporter: Reporter) -> Outcome:
        """Repair drift. Only changes of the object's status are reported."""
        unseen = run.object.status.get("observedGeneration") != run.object.generation
        if wish.drift and unseen:
            return Outcome(Result.NOTHING_TO_DO)  # until a client requests a run for the new spec
        try:
            extra = await self._actuate(dataclasses.replace(run, drift=True), Flow.RECONCILE, wish)
        except Waiting as waiting:
            again = RequeueAfter(Wish(reason=Reason.DRIFT), waiting.retry_after or _REQUEUE_AFTER)
            return Outcome(Result.WAITING, again, str(waiting))
        except (TransientError, PermanentError) as error:
            logger.info("%s: drift could not be repaired: %s", run.ref, error)
            return Outcome(Result.ERROR, requeue.same_wish(wish, error, self._world.jitter()), str(error))
        if statuses.merge(run.object.status, extra) != run.object.status or reporter.memo_changed:
            # No client has asked, so the last operation stays; so does what is reported and not written yet.
            reported = reporter.last.patch if reporter.last else {}
            kept = {name: run.object.status.get(name) for name in ("lastOperation", "lastError", *reported)}
            await reporter.report({**kept, "observedGeneration": run.object.generation, **extra})
        return Outcome(Result.REPAIRED, self._resync(run, Flow.RECONCILE))

    def _conditions(self, object: Object, flow: Flow, succeeded: bool, now: datetime) -> Patch:
        conditions = self._actuator.conditions(object, flow, succeeded, now)
        return {} if conditions is None else {"conditions": conditions}


def _require_live(live: bool, run: Run) -> None:
    """Raise Conflict unless the object was read from the API server.

    Without a patch that carries the version that was read, a bus that was rolled back would apply old specs.
    """
    if not live:
        raise Conflict(f"{run.ref}: has to be read from the API server first")
