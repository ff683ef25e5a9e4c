"""The reconcile shell: one run of any kind, from an item of the work queue to its outcome.

    item → read → decide → act → report → outcome: done, unfinished, failed, or ignored

A kind brings a `Reconciler`. The shell owns what all kinds share: the recorder, errors that become outcomes,
one backoff policy, and the report of a quarantine.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from bus import subjects
from bus.clusters.clusters import Clusters
from bus.messages import EventIntent, Reason, StatusIntent, Wish
from bus.outcomes import Failed, Outcome, RequeueAfter, Unfinished, backoff
from bus.transport.connection import Bus
from bus.workqueue.pool import Item
from windowbox.errors import Conflict, Forbidden, PermanentError, TransientError, Waiting, WindowboxError
from windowbox.kinds import RESOURCES
from windowbox.models.extensions import in_order
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.core.recorder import Recorder
from workers.core.recorder_live import LiveRecorder
from workers.core.reports import Reports, with_report


@dataclass(frozen=True)
class Backoff:
    """Delays before the next attempt: the class of the error gives the first, each further one doubles."""

    conflict: float = 0.05
    transient: float = 0.1
    permanent: float = 5.0
    longest: float = 300.0
    longest_forbidden: float = 20.0
    """A starting API server answers Forbidden until it has loaded its RBAC rules."""

    def delay(self, error: WindowboxError, attempt: int) -> float:
        """Seconds before attempt number `attempt`, counted from 1."""
        if (fixed := getattr(error, "retry_after", None)) is not None:
            return float(fixed)
        # Jitter keeps objects that failed together from coming back together.
        jitter = random.uniform(1.0, 1.1)
        match error:
            case Conflict():
                return backoff(attempt, first=self.conflict, longest=self.longest) * jitter
            case Forbidden():
                return backoff(attempt, first=self.transient, longest=self.longest_forbidden)
            case PermanentError():
                return backoff(attempt, first=self.permanent, longest=self.longest)
            case _:
                return backoff(attempt, first=self.transient, longest=self.longest) * jitter


BACKOFF = Backoff()
"""As Kubernetes' service controller retries: 5 s, doubling, up to five minutes."""
EXTENSION_BACKOFF = Backoff(
    conflict=0.005, transient=0.005, permanent=30.0, longest=1000.0, longest_forbidden=1000.0
)
"""As controller-runtime retries: 5 ms, doubling, up to 1000 s."""


@dataclass(frozen=True)
class Request:
    """A request to reconcile one object, with the recorder and the reports of this run."""

    ref: ObjectRef
    wish: Wish
    recorder: Recorder
    reports: Reports
    backoff: Backoff = BACKOFF

    def retry(self, error: WindowboxError, *, insist: bool = False) -> RequeueAfter:
        """Retry with growing delays. With `insist`, even if the object looks finished by then."""
        again = Wish(reason=Reason.RETRY, attempt=self.wish.attempt + 1)
        return RequeueAfter(again.insisting() if insist else again, self.backoff.delay(error, again.attempt))

    def retry_same(self, error: WindowboxError) -> RequeueAfter:
        """Retry with growing delays and the same wish: a check for drift stays one."""
        again = self.wish.retried()
        return RequeueAfter(again, self.backoff.delay(error, again.attempt))


class Reconciler(Protocol):
    """Reconciles the objects of one pool."""

    async def reconcile(self, request: Request) -> Outcome:
        """Reconcile the object as it is now, whatever the wish was made for. Idempotent; may be cancelled."""

    async def quarantine_patch(
        self, request: Request, found: Object, event: EventIntent
    ) -> dict[str, Any] | None:
        """The status of an object in quarantine: empty if the Event says enough, None for no report."""


async def reconcile(reconciler: Reconciler, request: Request) -> Outcome:
    """Run once. Errors that the kind leaves to the shell become outcomes."""
    try:
        return await reconciler.reconcile(request)
    except (TransientError, Waiting) as error:
        # Even an unreachable API ends the run: a redelivered item would count as one that crashed its worker.
        # The run may have been cut off between two writes, so the retry insists.
        return Unfinished(str(error), request.retry(error, insist=True))
    except PermanentError as error:
        return Failed(str(error), request.retry(error, insist=True))


class ReconcileHandler:
    """Reconciles the objects of one pool: hands each item to the pool's reconciler."""

    def __init__(
        self,
        bus: Bus,
        clusters: Clusters,
        reconciler: Reconciler,
        ready: Callable[[], Awaitable[object]] | None = None,
        backoff: Backoff = BACKOFF,
    ) -> None:
        """`ready` returns once everything that runs depend on has been read from the bus."""
        self._bus = bus
        self._clusters = clusters
        self._reconciler = reconciler
        self._ready = ready
        self._backoff = backoff

    async def handle(self, item: Item) -> Outcome:
        if self._ready:
            await self._ready()
        return await reconcile(self._reconciler, self._request(item))

    async def quarantine(self, item: Item) -> None:
        request = self._request(item)
        found = await request.recorder.read(request.ref)
        if found is None:
            return
        note = (
            f"set aside, because working on this {RESOURCES[request.ref.kind].kind} ended the worker process "
            "three times in a row; it is taken up again when it changes, or in ten minutes"
        )
        event = EventIntent(type="Warning", reason="SetAside", note=note)
        last = await request.reports.last()
        if last is None or last.uid != found.uid:
            last = StatusIntent(uid=found.uid, patch={})
        seen = with_report(found, last)
        patch = await self._reconciler.quarantine_patch(request, seen, event)
        if patch is None:
            return
        # What was reported before and is not written yet stays, unless a newer status has overtaken it.
        unwritten = last.patch if seen is not found else {}
        patch = in_order({**unwritten, **patch}, seen.status)
        report = {"patch": patch, "events": (event,), "version": found.resource_version}
        await request.reports.send(last.model_copy(update={**report, "shown": False}))

    def _request(self, item: Item) -> Request:
        ref, recorder = subjects.ref(item.key), LiveRecorder(self._bus, self._clusters, item)
        return Request(ref, item.wish, recorder, Reports(self._bus, ref, recorder), self._backoff)
