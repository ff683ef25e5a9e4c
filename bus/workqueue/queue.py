"""The work queue: at most one item for each object, processed by one process at a time.

A wish (TRIGGERS) asks for a reconcile of an object; an item (WORK) is its place in the queue, waiting or in
flight. The run that fulfils a wish deletes it, so TRIGGERS holds all unfulfilled wishes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from bus import streams, subjects
from bus.leases import guard
from bus.messages import TRACE, Wish
from bus.transport import consumers
from bus.transport.connection import Bus, Headers, Occupied, Stored, WrongSequence, instant
from windowbox.telemetry import metrics, tracing

logger = logging.getLogger(__name__)

WISH = "Wb-Wish"
"""A header of items: the sequence of the wish that the item was made for, and that it repeats."""

CUT_OFF = "Wb-Cut-Off"
"""A header of items: the run before could not end."""

_SCHEDULE = "Nats-Schedule"
_OVERDUE = 5.0
"""Seconds after which a due schedule counts as lost by the server."""
_FEW = 100
"""Up to so many wishes are enqueued without asking for existing items: the server refuses duplicates."""
_BEYOND = 1 << 30
"""More subjects than a stream has."""
_LAG = 0.005
_LOOKS = 1000
_RACES = 20


class Depth(NamedTuple):
    """The length of a pool's queue, or of the reports to write."""

    waiting: int
    in_hand: int
    oldest_seconds: float
    """Age of the oldest wish that is not fulfilled, or report that is not written."""


class Scheduled(NamedTuple):
    """A wish in LATER."""

    wish: Wish
    due: datetime
    made: datetime
    """When it was scheduled, by the server's clock."""
    trace: str
    """The trace context of the run that scheduled it."""
    fired: bool
    """The server has fired it, and no process has admitted it yet."""

    @classmethod
    def of(cls, stored: Stored) -> Scheduled:
        """Of a message that was read directly."""
        made, due = datetime.fromtimestamp(instant(stored.time), UTC), _due(stored)
        return cls(Wish.decoded(stored.data), due or made, made, stored.headers.get(TRACE, ""), due is None)


@dataclass(frozen=True)
class Queue:
    """The enqueueing side of one pool's queue."""

    bus: Bus
    pool: str

    async def wish(self, key: str, wish: Wish) -> None:
        """Request a reconcile. Once this returns, no crash loses the request.

        A pending wish for the object, even one in flight, is merged with it: it may ask for more, such as a
        check for drift.
        """
        subject, both = subjects.wish(self.pool, key), wish
        expected: int | None = 0  # most objects have no pending wish, so publish without a read
        headers = {TRACE: tracing.for_message()}
        for left in reversed(range(_RACES)):
            try:
                sequence = await self.bus.publish(
                    subject, both.encoded(), headers, expect_last=expected, repeat=True
                )
                break
            except WrongSequence:
                last = await self.bus.last(streams.TRIGGERS, subject)
                both = Wish.decoded(last.data) | wish if last else wish
                # Overwrite in the end: losing a reason is better than racing without end.
                expected = (last.sequence if last else 0) if left > 1 else None
        else:
            sequence = None
        await self._enqueue(key, both.encoded(), {**headers, WISH: str(sequence or 0)})

    async def remind(self, key: str, wish: Wish) -> None:
        """Like `wish`, but a pending wish stays as it is."""
        headers = {TRACE: tracing.for_message()}
        with contextlib.suppress(WrongSequence):
            await self.bus.publish(subjects.wish(self.pool, key), wish.encoded(), headers, expect_last=0)
        await self.enqueue(key)

    async def enqueue(self, key: str, *, cut_off: bool = False) -> None:
        """Add the object to the queue, unless it is waiting there or in flight.

        `cut_off`: the run before could not end, so that the next one has to insist as well.
        """
        await self._enqueue(key, b"", {CUT_OFF: "yes"} if cut_off else None)

    async def _enqueue(self, key: str, data: bytes, headers: Headers | None) -> None:
        with contextlib.suppress(Occupied):
            await self.bus.publish(subjects.item(self.pool, key), data, headers, repeat=True)

    async def removed(self, item: int) -> None:
        """Wait until an acknowledged item is removed from WORK.

        A single server removes it before it answers. In a cluster the stream's leader may remove it later,
        and until then refuses another item of the same object.
        """
        if not self.bus.clustered:
            return
        for _ in range(_LOOKS):
            if await self.bus.at(streams.WORK, item) is None:
                return
            await asyncio.sleep(_LAG)
        logger.warning("item %d of %s was acknowledged, but is still in the queue", item, self.pool)

    async def schedule(self, key: str, wish: Wish, after: float, *, asked: bool = True) -> None:
        """Schedule a wish that comes due in `after` seconds. It replaces a scheduled wish of the same object.

        If no client `asked` for the run that schedules it, a replaced wish that insists is not lost: the new
        wish insists, too, and comes due at the earlier of both times.
        """
        at = datetime.fromtimestamp(await self.bus.now() + after, UTC)
        subject = subjects.later(self.pool, key)
        if not asked and (stored := await self.bus.last(streams.LATER, subject)):
            scheduled = Scheduled.of(stored)
            if scheduled.wish.insist:
                wish = wish.insisting()
                if scheduled.due < at:
                    wish, at = wish.noted(scheduled.wish.note), scheduled.due
        headers = {
            _SCHEDULE: f"@at {at.isoformat(timespec='microseconds').replace('+00:00', 'Z')}",
            "Nats-Schedule-Target": subjects.due(self.pool, key),
            TRACE: tracing.for_message(),
        }
        await self.bus.publish(subject, wish.encoded(), headers, repeat=True)

    async def defer(self, key: str, wish: Wish, after: float) -> float:
        """Like `schedule`, but a scheduled wish is merged with it, and the earlier time counts.

        Returns the seconds until then.
        """
        if stored := await self.bus.last(streams.LATER, subjects.later(self.pool, key)):
            scheduled = Scheduled.of(stored)
            wish = scheduled.wish | wish
            after = min(after, max(0.0, scheduled.due.timestamp() - await self.bus.now()))
        await self.schedule(key, wish, after)
        return after

    async def unschedule(self, key: str, before: float) -> None:
        """Drop the object's scheduled wish if it is older than that: a run has fulfilled it since."""
        scheduled = await self.bus.last(streams.LATER, subjects.later(self.pool, key))
        if scheduled and instant(scheduled.time) < before:
            await self.bus.delete(streams.LATER, scheduled.sequence)

    async def scheduled(self, key: str) -> int:
        """The sequence of the object's scheduled wish; 0 if there is none."""
        scheduled = await self.bus.last(streams.LATER, subjects.later(self.pool, key))
        return scheduled.sequence if scheduled else 0

    async def admit(self, due: consumers.Delivery) -> None:
        """Turn a due requeue into a wish."""
        key = subjects.without(f"due.{self.pool}", due.subject)
        with tracing.span("due", due.headers.get(TRACE, "")):
            await self.wish(key, Wish.decoded(due.data))
        await due.ack()
        await self.bus.delete(streams.LATER, due.sequence)

    async def sweep(self, older_than: float) -> int:
        """Enqueue every wish older than so many seconds whose item was lost. Returns how many."""
        horizon = await self.bus.now() - older_than
        wishes, old = subjects.wish(self.pool, ">"), list[str]()
        oldest = await self.bus.first(streams.TRIGGERS, wishes)
        # Mostly there is no old wish, and reading all of them would cost the server a consumer.
        if oldest is not None and instant(oldest.time) < horizon:
            read = consumers.snapshot(self.bus, streams.TRIGGERS, [wishes], headers_only=True)
            old = [
                subjects.without(f"trigger.{self.pool}", stored.subject)
                async for stored in read
                if int(stored.time) / 1e9 < horizon
            ]
        everything, queued = {"subjects_filter": subjects.item(self.pool, ">")}, set[str]()
        while len(old) > _FEW:  # one request costs less than publishing duplicates
            info = await self.bus.api(f"STREAM.INFO.{streams.WORK}", everything | {"offset": len(queued)})
            page = info["state"].get("subjects") or {}
            queued |= {subjects.without(f"work.{self.pool}", subject) for subject in page}
            if not page or len(queued) >= int(info.get("total", 0)):
                break
        lost = [key for key in old if key not in queued]
        for key in lost:
            await self.enqueue(key)
        found = len(lost) + await self._sweep_overdue(await self.bus.now() - _OVERDUE)
        if found:
            metrics.swept.labels(self.pool).inc(found)
        return found

    async def _sweep_overdue(self, horizon: float) -> int:
        """Enqueue overdue requeues. A server whose store was rolled back never fires some schedules."""
        found, scheduled = 0, subjects.later(self.pool, ">")
        # An offset beyond the last subject: the server counts the subjects, and lists none.
        none = {"subjects_filter": scheduled, "offset": _BEYOND}
        if not (await self.bus.api(f"STREAM.INFO.{streams.LATER}", none)).get("total"):
            return 0
        async for stored in consumers.snapshot(self.bus, streams.LATER, [scheduled]):
            with guard.isolated(f"sweep of {self.pool}", stored.subject):
                if (at := _due(stored)) and at.timestamp() < horizon:
                    found += 1
                    key = subjects.without(f"later.{self.pool}", stored.subject)
                    await self.remind(key, Wish.decoded(stored.data))
                    await self.bus.delete(streams.LATER, stored.sequence)
        return found

    async def depth(self) -> Depth:
        """The number of items waiting and in flight, and the age of the oldest wish."""
        info = await self.bus.api(f"CONSUMER.INFO.{streams.WORK}.pool-{self.pool}")
        oldest = await self.bus.first(streams.TRIGGERS, subjects.wish(self.pool, ">"))
        age = await self.bus.now() - instant(oldest.time) if oldest else 0.0
        return Depth(int(info["num_pending"]), int(info["num_ack_pending"]), max(0.0, age))

    def due_consumer(self) -> consumers.Consumer:
        return consumers.Consumer(streams.LATER, f"due-{self.pool}", (subjects.due(self.pool, ">"),), 10)

    def item_consumer(self, ack_wait: float) -> consumers.Consumer:
        return consumers.Consumer(
            streams.WORK, f"pool-{self.pool}", (subjects.item(self.pool, ">"),), ack_wait
        )


def _due(scheduled: Stored) -> datetime | None:
    """When the server is to fire a schedule."""
    at = scheduled.headers.get(_SCHEDULE, "").removeprefix("@at ")
    return datetime.fromisoformat(at) if at else None
