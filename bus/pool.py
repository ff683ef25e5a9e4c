"""A worker pool: fetches items from its queue, calls the handler, and acknowledges them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from bus import crashcounts, streams, subjects
from bus.connection import Bus, Stored, instant
from bus.consumers import Delivery
from bus.crashcounts import CrashCounts
from bus.messages import TRACE, Call, Read, Reason, Result, RunRecord, Wish
from bus.pull import Pull
from bus.queue import Queue
from bus.ranks import Rank
from windowbox.errors import Superseded, TransientError, Unreachable, WindowboxError
from windowbox.telemetry import metrics, stalls, tracing

logger = logging.getLogger(__name__)

PROCESS = f"{socket.gethostname()}/{os.getpid()}"
"""Who we are, in leases, journal and logs."""

_QUARANTINE_SECONDS = 600.0
_GRACE = 8.0
_AGAIN = 0.5


@dataclass(frozen=True)
class RequeueAfter:
    """The object is to be looked at once more, after a while."""

    wish: Wish
    after: float


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    result: Result
    requeue: RequeueAfter | None = None
    note: str = ""


@dataclass
class Item:
    """One object to be looked at, for as long as it is ours."""

    key: str
    wish: Wish
    wish_sequence: int
    delivery: int
    hold: DeliveryHold
    reads: list[Read] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def check(self) -> None:
        """Stop here if the item may have been given to somebody else: we have been away for too long."""
        if not self.hold.held():
            raise Superseded(f"{self.key}: taken away after {self.hold.limit:.0f} s without a sign of life")


class DeliveryHold:
    """Whether what we fetched is still ours: true as long as the server hears of us in time."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.stalled = False
        """It was lost because this process stood still, not because it was cut off."""
        self.busy = False
        """Meanwhile this process was at work, not stopped or without a CPU."""
        self._renewed = time.monotonic()

    def renew(self, at: float | None = None) -> None:
        """The server has heard of us, just now or at the time given."""
        self._renewed = time.monotonic() if at is None else at

    def held(self) -> bool:
        return time.monotonic() - self._renewed < self.limit


class Handler(Protocol):
    async def handle(self, item: Item) -> Outcome:
        """Do what the object asks for. Safe to repeat, and to be stopped anywhere."""

    async def quarantine(self, item: Item) -> None:
        """Tell people that this object is left alone, since its runs took their process down."""


class Pool:
    """Workers of one pool within this process."""

    def __init__(
        self,
        bus: Bus,
        pool: str,
        handler: Handler,
        *,
        concurrency: int = 64,
        ack_wait: float = 10.0,
        rank: Rank | None = None,
    ) -> None:
        """With `rank`, one process is preferred: for runs of little CPU time."""
        self._bus = bus
        self._handler = handler
        self._ack_wait = ack_wait
        self.queue = Queue(bus, pool)
        self._pool = pool
        items = self.queue.item_consumer(ack_wait)
        self._rank = rank
        self._pull = rank.pull(items, concurrency) if rank else Pull(bus, items, concurrency)
        self._active: dict[asyncio.Task[None], Delivery] = {}
        self._one_suspect = asyncio.Lock()
        self._starts = CrashCounts(bus, pool)
        self._superseded: set[str] = set()
        self._woke, self._used = time.monotonic(), time.process_time()
        # Every item shares one hold: either the process was alive in time for all of them, or for none.
        self._hold = DeliveryHold(ack_wait * 0.8)

    @property
    def active(self) -> int:
        """How many items are being worked on."""
        return len(self._active)

    async def run(self) -> None:
        """Work until cancelled; then finish what can be finished soon, and give back the rest."""
        self._hold.renew()
        keeper = asyncio.create_task(self._keep(), name=f"{self._pool}: keep items")
        try:
            # A server that comes back may have forgotten who holds what, and give our items to others.
            with self._bus.on_disconnect(self._abandon_items):
                async for batch in self._pull.deliveries():
                    for delivery in batch:
                        self._begin(delivery)
        finally:
            await self._finish()
            keeper.cancel()

    def _begin(self, delivery: Delivery) -> None:
        if not self._hold.held():
            # We have just been away, and who knows for how long this has waited for us.
            self._pull.done()
            return
        task = asyncio.create_task(self._process(delivery), name=delivery.subject)
        self._active[task] = delivery
        task.add_done_callback(self._ended)
        metrics.in_flight.labels(self._pool).inc()

    def _ended(self, task: asyncio.Task[None]) -> None:
        delivery = self._active.pop(task)
        self._pull.done()
        metrics.in_flight.labels(self._pool).dec()
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s: %s", delivery.subject, error, exc_info=error)

    async def _process(self, delivery: Delivery) -> None:
        key = subjects.without(f"work.{self._pool}", delivery.subject)
        try:
            await self._fulfil(key, delivery)
            await delivery.ack()
            await self._look_once_more(key, delivery.sequence)
        except Superseded as error:
            logger.warning("%s: %s", key, error)
            self._note_superseded(key)
            await self._requeue_superseded()
        except TransientError as error:
            logger.warning("%s: not acknowledged, will be redelivered: %s", key, error)

    async def _look_once_more(self, key: str, item: int) -> None:
        """A wish made after our last look found the item still in the queue and was not queued: queue it."""
        while True:
            try:
                await self.queue.left(item)
                if await self._wish(key):
                    await self.queue.enqueue(key)
                return
            except TransientError as error:
                # The item is settled, so nothing else would bring us back here.
                logger.info("%s: again in %s s: %s", key, _AGAIN, error)
                await asyncio.sleep(_AGAIN)

    async def _fulfil(self, key: str, delivery: Delivery) -> None:
        """Run until no wish is left."""
        cut_off = delivery.number > 1
        while wish := await self._wish(key):
            requested = Wish.decoded(wish.data)
            item = Item(
                key=key,
                # What comes again was cut off, perhaps after it had taken the client's wish off the object.
                wish=requested.insisting() if cut_off else requested,
                wish_sequence=wish.sequence,
                delivery=delivery.number,
                hold=self._hold,
            )
            if delivery.number > 1:
                unfinished = await self._run_suspect(item, wish)
            else:
                unfinished = await self._run(item, wish)
            if await self._bus.delete(streams.TRIGGERS, wish.sequence):
                break
            cut_off = unfinished  # what is to be done in any case, the next run does: it may replace the wish

    async def _run_suspect(self, item: Item, wish: Stored) -> bool:
        # An item that comes back may have taken its worker down: were several of them running, one could
        # not tell which.
        noted = self._starts.noted(item.key, item.wish_sequence, item.delivery, lambda: self._is_guilty(item))
        async with self._one_suspect, noted as may_start:
            if may_start:
                return await self._run(item, wish)
            await self._quarantine(item)
            return False

    def _is_guilty(self, item: Item) -> bool:
        """Whether the process stood still over this item until the item was lost."""
        if item.hold.held() or not (item.hold.stalled or self._stood_still()):
            return False
        culprit = stalls.culprit(within=4 * self._ack_wait)
        if culprit.startswith("work."):
            return culprit == subjects.item(self._pool, item.key)
        # Nobody saw what it did. It may have been stopped, or got no CPU time, on a busy machine.
        return item.hold.busy or self._was_busy()

    def _stood_still(self) -> bool:
        """Whether the keeper has not been called for much longer than it sleeps."""
        return time.monotonic() - self._woke > self._ack_wait * 0.6

    def _was_busy(self) -> bool:
        """Whether it has used much CPU time since then."""
        return time.process_time() - self._used > self._ack_wait * 0.5

    async def _run(self, item: Item, wish: Stored) -> bool:
        """Whether the run is to be made again in any case, as if it had been cut off."""
        started, clock = datetime.now(UTC), time.perf_counter()
        waited = max(0.0, self._bus.clock.rough() - instant(wish.time))
        metrics.bus_latency.labels(self._pool).observe(waited)
        with tracing.span(f"run {self._pool}", wish.headers.get(TRACE, ""), key=item.key) as trace:
            outcome = await self._outcome(item)
            item.check()
            if self._rank:
                self._rank.note(outcome.result)
            took = time.perf_counter() - clock
            metrics.runs.labels(self._pool, outcome.result).observe(took)
            if requeue := outcome.requeue:
                await self.queue.schedule(item.key, requeue.wish, requeue.after, asked=item.wish.asked)
            record = RunRecord(
                pool=self._pool,
                key=item.key,
                wish=item.wish,
                wish_sequence=item.wish_sequence,
                delivery=item.delivery,
                waited=waited,
                started=started,
                seconds=took,
                process=PROCESS,
                outcome=outcome.result,
                reads=item.reads,
                calls=item.calls,
                note=outcome.note,
                trace=trace,
            )
            await self._note(record)
        return bool(outcome.requeue and outcome.requeue.wish.insist)

    async def _note(self, record: RunRecord) -> None:
        data = record.encoded()
        if len(data) + 4096 > self._bus.max_payload:
            data = record.model_copy(update={"calls": [], "calls_omitted": True}).encoded()
        await self._bus.publish(subjects.run(self._pool, record.key), data)

    async def _outcome(self, item: Item) -> Outcome:
        try:
            return await self._handler.handle(item)
        except (Superseded, Unreachable):
            raise
        except Exception as error:
            # A bug, or something nobody foresaw: this object has to wait, the others must not.
            logger.exception("%s: run failed", item.key)
            attempt = item.wish.attempt + 1
            again = RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt, insist=True), backoff(attempt))
            return Outcome(Result.FAILED, again, f"{type(error).__name__}: {error}")

    async def _quarantine(self, item: Item) -> None:
        logger.error(
            "%s: set aside: its runs ended their process, or held it up, %d times", item.key, crashcounts.MAX
        )
        metrics.quarantine.labels(self._pool).inc()
        await self._handler.quarantine(item)
        await self.queue.schedule(item.key, Wish(reason=Reason.QUARANTINED), _QUARANTINE_SECONDS)

    async def _wish(self, key: str) -> Stored | None:
        return await self._bus.last(streams.TRIGGERS, subjects.wish(self._pool, key))

    async def _keep(self) -> None:
        """Tell the server in time that we are still working on what we have."""
        while True:
            stalled, busy = self._stood_still(), self._was_busy()
            self._woke, self._used = time.monotonic(), time.process_time()
            if not self._hold.held():
                self._hold.stalled, self._hold.busy = stalled, busy
                self._abandon_items()
            sent = time.monotonic()
            deliveries = list(self._active.values())
            for delivery in deliveries:
                with contextlib.suppress(WindowboxError):
                    await delivery.in_progress()
            if heard := await self._heard(deliveries, sent):
                self._hold.renew(heard)
                await self._requeue_superseded()
                await self._starts.take_back()
            await asyncio.sleep(_until_next(self._ack_wait / 5))

    async def _heard(self, kept: list[Delivery], sent: float) -> float:
        """When we said what we keep, or 0 if the server may not have heard it: it answers a later question.

        Of several servers, the one that leads the consumer has to hear it, and must not be cut off from the
        others: what is stored, most of them have agreed on.
        """
        alive, patience = subjects.start(self._pool, "alive"), self._ack_wait / 10
        answered = self._bus.requests.answered
        if not kept and not self._bus.clustered and sent - answered < self._ack_wait / 5:
            return answered  # what anybody in this process has asked will do
        try:
            if self._bus.clustered and kept:
                await kept[-1].keep_for_sure(patience)
                await self._bus.publish(alive, b"", timeout=patience)
            else:
                await self._bus.last(streams.JOURNAL, alive, timeout=patience)
        except WindowboxError:
            return 0.0
        return sent

    def _abandon_items(self) -> None:
        """We were stopped, or cut off, for so long that others have our items: leave them alone."""
        if self._active:
            lost = len(self._active)
            logger.warning(
                "%s: the bus was unreachable for too long; %d items will be redelivered", self._pool, lost
            )
        self._hold = DeliveryHold(self._hold.limit)
        self._pull.restart()
        for task, delivery in self._active.items():
            task.cancel()
            self._note_superseded(subjects.without(f"work.{self._pool}", delivery.subject))

    def _note_superseded(self, key: str) -> None:
        # What we did late may have undone what a newer run did: the object has to be looked at once more.
        # Not so if we stood still over it: we did nothing, and would do the same again.
        if stalls.culprit(within=4 * self._ack_wait) == subjects.item(self._pool, key):
            return
        metrics.superseded.labels(self._pool).inc()
        self._superseded.add(key)

    async def _requeue_superseded(self) -> None:
        for key in list(self._superseded):
            try:
                await self.queue.wish(key, Wish(reason=Reason.LATE_REPORT))
            except WindowboxError:
                return
            self._superseded.discard(key)

    async def _finish(self) -> None:
        if self._active:
            await asyncio.wait(list(self._active), timeout=_GRACE)
        left = dict(self._active)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1)
        for task, delivery in left.items():
            # Whoever is still at it keeps the item to the end, so that nobody else begins meanwhile.
            if task.done():
                with contextlib.suppress(WindowboxError):
                    await delivery.nak()
        await self._requeue_superseded()


def _until_next(interval: float) -> float:
    """Seconds until all who repeat something at this interval do: an idle process wakes once for them."""
    left = interval - asyncio.get_running_loop().time() % interval
    return left if left > interval / 10 else left + interval


def backoff(attempt: int, *, first: float = 0.005, longest: float = 1000.0) -> float:
    """Seconds to wait before attempt number `attempt`, counted from 1."""
    return float(min(longest, first * 2 ** min(attempt - 1, 40)))
