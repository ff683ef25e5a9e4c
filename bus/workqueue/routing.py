"""Routing: each pool's mapping turns a changed object into keys to reconcile; each key gets a wish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, Protocol

from bus import streams, subjects
from bus.leases import elections, guard
from bus.messages import TRACE, Announcement, Reason, Wish
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.transport.consumers import Delivery
from bus.transport.pull import Pull
from bus.workqueue import forgetting
from bus.workqueue.forgetting import ReportSweep
from bus.workqueue.queue import Queue
from bus.workqueue.ranks import Rank
from windowbox.errors import TransientError, WindowboxError
from windowbox.models.objects import Object
from windowbox.telemetry import metrics, tracing

logger = logging.getLogger(__name__)

_AT_ONCE = 256
_AGAIN = 1.0
_SOON, _APART = 1.0, 0.05
"""Seconds until the first deferred check, and between two of them."""
_BIG = 1 << 16
"""After an object of so many bytes a sweep yields to the event loop."""
_YOUNG = 20.0
"""An object that changed less than so many seconds ago is not swept: a run may be in progress."""
_LATELY = 300.0
"""Seconds for which an object that only a listing has shown is checked for drift."""


class EventMapping(Protocol):
    """Maps changed objects to the keys that a pool reconciles."""

    kinds: tuple[str, ...]
    """The first is the pool's own kind: the keys of its objects are the keys of the pool."""

    @property
    def owned(self) -> Collection[str]:
        """The kinds whose objects the pool creates: a change of one of these is drift."""

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        """The keys of the pool's objects that `change` concerns."""

    def unfinished(self, object: Object) -> bool:
        """Whether an object of the pool's own kind still needs a reconcile."""


class PreviousVersion:
    """The version before a change, fetched on demand."""

    def __init__(self, bus: Bus, change: Announcement) -> None:
        self._bus = bus
        self._change = change

    async def object(self) -> Object | None:
        if not self._change.predecessor:
            return None
        stored = await self._bus.at(streams.OBJECTS, self._change.predecessor)
        if stored is None or stored.subject != self._change.stored.subject:
            return None
        before = Announcement(stored)
        return None if before.gone or before.omitted else before.object()


class Router:
    """Turns announcements into wishes of one pool. Processes share the announcements."""

    def __init__(
        self,
        bus: Bus,
        queue: Queue,
        mapping: EventMapping,
        rank: Rank | None = None,
        ignores: Callable[[Announcement], bool] = lambda _: False,
        defers: Callable[[Announcement], bool] = lambda _: False,
    ) -> None:
        """`ignores` returns True for changes that certainly concern no object of the pool.

        `defers` returns True for those whose checks may wait: hundreds come at once, and clients come first.
        """
        self._bus = bus
        self._ignores = ignores
        self._defers = defers
        self._deferred: dict[str, float] = {}
        """By key: when its deferred check is due."""
        self._last_check = 0.0
        self._rank = rank or Rank(bus)
        self._queue = queue
        self._mapping = mapping
        filters = tuple(subjects.seen_kind("*", kind) for kind in mapping.kinds)
        self._swept = subjects.seen_kind("*", mapping.kinds[0])
        consumer = consumers.Consumer(
            streams.OBJECTS, f"route-{queue.pool}", filters, 10, deliver="last_per_subject"
        )
        self._changes = self._rank.pull(consumer, _AT_ONCE)

    async def run(self) -> None:
        """Route until cancelled."""
        changes, dues = f"{self._queue.pool}: changes", f"{self._queue.pool}: dues"
        async with asyncio.TaskGroup() as tasks:
            routed = guard.kept(changes, lambda: _each(self._changes, self._route, self._ignored))
            tasks.create_task(routed, name=changes)
            tasks.create_task(guard.kept(dues, lambda: run_due(self._bus, self._queue)), name=dues)

    async def sweep(self, interval: float) -> None:
        """Enqueue lost wishes and unfinished objects periodically; never returns. Needs a lease."""
        back, position = asyncio.Event(), 0
        reports = ReportSweep(self._bus, self._mapping.kinds[0])
        # After a reconnect the stream may be another, with other messages at the same sequences.
        with self._bus.on_reconnect(back.set), self._rank.first():
            async with contextlib.aclosing(elections.sweeps(self._bus, interval, _YOUNG)) as sweeps:
                async for age in sweeps:
                    if back.is_set():
                        position = 0
                        reports.restart()
                    back.clear()
                    try:
                        await self._queue.sweep(age)
                        position = await self._sweep_objects(position)
                        await reports.step()
                    except WindowboxError as error:
                        logger.info("sweep of %s: %s", self._queue.pool, error)

    async def _route(self, delivery: Delivery) -> None:
        change = Announcement(delivery.stored)
        owned = subjects.seen_of_kind(change.stored.subject) in self._mapping.owned
        with tracing.span(f"route {self._queue.pool}", delivery.headers.get(TRACE, "")):
            try:
                keys = await self._mapping.keys_for(change, PreviousVersion(self._bus, change))
            except TransientError:
                raise
            except Exception:  # a bug of the mapping, triggered by fields that tenants write
                # A redelivery would fail again, and thousands of them would block the pool.
                logger.exception("%s: mapping failed in pool %s", change.stored.subject, self._queue.pool)
                metrics.unmapped.labels(self._queue.pool).inc()
                keys = [subjects.without("object", change.stored.subject)] if self._is_own(change) else []
            if change.gone and self._is_own(change):
                own = subjects.without("object", change.stored.subject)
                await forgetting.forget(self._bus, self._queue, own, change.uid)
            wish = Wish(reason=Reason.DRIFT if owned else Reason.EVENT)
            for key in keys:
                if self._defers(change):
                    await self._defer(key, wish)
                else:
                    await self._queue.wish(key, wish)
        await delivery.settle()

    async def _defer(self, key: str, wish: Wish) -> None:
        """Schedule a check after all others, unless it has one: what it owns is listed at once."""
        now, deferred = time.monotonic(), self._deferred
        if deferred.get(key, 0.0) > now:
            return
        while deferred and (oldest := next(iter(deferred))) and deferred[oldest] <= now:
            del deferred[oldest]
        self._last_check = deferred[key] = max(now + _SOON, self._last_check + _APART)
        try:
            deferred[key] = now + await self._queue.defer(key, wish, deferred[key] - now)
        except BaseException:
            deferred.pop(key, None)  # it is routed again
            raise

    def _ignored(self, delivery: Delivery) -> bool:
        # Most changes are our own writes, and a task for each would cost more than this.
        if len(delivery.data) > _BIG:
            return False
        try:
            return self._ignores(Announcement(delivery.stored))
        except Exception:  # a bug, triggered by fields that tenants write
            return False  # the mapping fails as well, and logs it

    def _is_own(self, change: Announcement) -> bool:
        """Whether the object is of the pool's own kind."""
        return subjects.seen_of_kind(change.stored.subject) == self._mapping.kinds[0]

    async def _sweep_objects(self, position: int) -> int:
        """Enqueue unfinished objects announced after `position`. Returns the next position."""
        end = int((await self._bus.api(f"STREAM.INFO.{streams.OBJECTS}"))["state"]["last_seq"])
        if end < position:  # the stream is a new one
            position = 0
        if not await self._bus.has_since(streams.OBJECTS, position + 1, self._swept):
            return position
        reached, unfinished = position, dict[str, _Unfinished]()
        async for stored in consumers.snapshot(
            self._bus, streams.OBJECTS, [self._swept], history=position > 0, since=position and position + 1
        ):
            change, reached = Announcement(stored), max(reached, stored.sequence)
            before = unfinished.pop(stored.subject, None)
            if reason := self._reason_to_sweep(change):
                unfinished[stored.subject] = _Unfinished(reason, stored.sequence, int(stored.time) / 1e9)
            elif before and before.reason is Reason.DRIFT and not change.gone:
                unfinished[stored.subject] = before
            if len(stored.data) > _BIG:
                await asyncio.sleep(0)  # one such object takes milliseconds, and there may be hundreds
        now, first_young = await self._bus.now(), reached + 1
        for subject, found in unfinished.items():
            key = subjects.without("object", subject)
            if found.at > now - _YOUNG:
                first_young = min(first_young, found.sequence)  # the next sweep begins with it
                continue
            if found.reason is Reason.DRIFT and found.at < now - _LATELY:
                continue
            with guard.isolated(f"sweep of {self._queue.pool}", key):
                # A scheduled requeue comes by itself.
                if await self._bus.last(streams.LATER, subjects.later(self._queue.pool, key)) is None:
                    await self._queue.remind(key, Wish(reason=found.reason))
        return first_young - 1

    def _reason_to_sweep(self, change: Announcement) -> Reason | None:
        """The reason to reconcile the object, or None."""
        if change.gone or change.omitted:
            return None
        try:
            if self._mapping.unfinished(change.object()):
                return Reason.SWEEP
        except Exception:  # a bug, triggered by fields that tenants write
            # Unknown, so its run decides.
            logger.exception("%s: sweep failed in pool %s", change.stored.subject, self._queue.pool)
            return Reason.SWEEP
        # The bus did not know the object, so a deletion of its owned objects may have been missed.
        unknown = change.operation == "LISTED" and not change.predecessor
        return Reason.DRIFT if unknown and self._mapping.owned and self._is_own(change) else None


class _Unfinished(NamedTuple):
    reason: Reason
    sequence: int
    at: float
    """When the object was announced."""


async def run_due(bus: Bus, queue: Queue) -> None:
    """Enqueue due requeues until cancelled."""
    await _each(Pull(bus, queue.due_consumer(), _AT_ONCE), queue.admit)


async def _each(
    pull: Pull,
    act: Callable[[Delivery], Awaitable[None]],
    ignored: Callable[[Delivery], bool] = lambda _: False,
) -> None:
    """Call `act` for each delivery, many at once. Transient errors are redelivered, others logged."""
    running: set[asyncio.Task[None]] = set()

    async def one(delivery: Delivery) -> None:
        try:
            await act(delivery)
        except TransientError as error:
            logger.info("%s: again in %s s: %s", delivery.subject, _AGAIN, error)
            with contextlib.suppress(WindowboxError):
                await delivery.nak(_AGAIN)
        except Exception:  # a permanent error of the bus, a message that is not ours, or a bug
            logger.exception("%s: skipped", delivery.subject)
            with contextlib.suppress(WindowboxError):
                await delivery.settle()
        finally:
            pull.done()

    try:
        async for batch in pull.deliveries():
            for delivery in batch:
                if ignored(delivery):
                    with contextlib.suppress(WindowboxError):
                        await delivery.settle()
                    pull.done()
                    continue
                task = asyncio.create_task(one(delivery), name=delivery.subject)
                running.add(task)
                task.add_done_callback(running.discard)
    finally:
        for task in running:
            task.cancel()
