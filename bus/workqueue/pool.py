"""A worker pool: fetches items from its queue, calls the handler, and acknowledges them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import orjson

from bus import streams, subjects
from bus.messages import TRACE, Call, Read, Reason, RunRecord, Wish
from bus.outcomes import Done, Failed, Outcome, RequeueAfter, Unfinished, backoff
from bus.transport.connection import Bus, Headers, Stored, instant
from bus.transport.consumers import Delivery
from bus.transport.pull import Pull
from bus.workqueue import crashcounts
from bus.workqueue.crashcounts import CrashCounts
from bus.workqueue.queue import CUT_OFF, WISH, Queue
from bus.workqueue.ranks import Rank
from windowbox.clients.kubernetes.bulkhead import Bulkhead
from windowbox.errors import Superseded, TransientError, Unreachable, Waiting, WindowboxError
from windowbox.models.refs import RUNTIME, ObjectRef
from windowbox.telemetry import metrics, stalls, tracing

logger = logging.getLogger(__name__)

_QUARANTINE_SECONDS = 600.0
_GRACE = 8.0
_AGAIN = 0.5
FRESH = 0.02
"""Seconds for which an item's own wish is taken as it is. Another wish within them costs a second run."""
_STOPPED = 5.0
"""Seconds before a run is repeated that was stopped because its cluster is slow."""


def this_process() -> str:
    """The name of this process in leases, journal and logs."""
    return f"{socket.gethostname()}/{os.getpid()}"


@dataclass
class Item:
    """An item of the work queue that this process has fetched, and what its run has read and called."""

    key: str
    wish: Wish
    wish_sequence: int
    delivery: int
    hold: DeliveryHold
    reads: list[Read] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    writes: set[tuple[ObjectRef, str]] = field(default_factory=set)
    """The objects that its run has written, with the versions of the answers."""

    def check(self) -> None:
        """Raise Superseded if the item may have been redelivered to another process."""
        if not self.hold.held():
            raise Superseded(f"{self.key}: may be redelivered: not renewed for {self.hold.limit:.0f} s")


class DeliveryHold:
    """Whether fetched items are still this process's: while the server gets its renewals in time."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.stalled = False
        """It was lost because the event loop was blocked, not because the bus was unreachable."""
        self.busy = False
        """Meanwhile this process used CPU time: it was neither stopped nor starved."""
        self._renewed = time.monotonic()

    def renew(self, at: float | None = None) -> None:
        """The server has got a renewal, now or at the time given."""
        self._renewed = time.monotonic() if at is None else at

    def held(self) -> bool:
        return time.monotonic() - self._renewed < self.limit


class _Wished(NamedTuple):
    """A wish in TRIGGERS."""

    wish: Wish
    sequence: int
    at: float
    headers: Headers


class Handler(Protocol):
    async def handle(self, item: Item) -> Outcome:
        """Reconcile the object. Idempotent; may be cancelled at any point."""

    async def quarantine(self, item: Item) -> None:
        """Report that the object is in quarantine, because its runs crashed their process."""


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
        sharing: Callable[[ObjectRef], str] | None = None,
    ) -> None:
        """With `rank`, one process gets items first: for runs of little CPU time.

        `sharing` names the cluster whose API server an item's run waits for: slow clusters get a share of the
        slots, so that they hold up no others.
        """
        self._bus = bus
        self._handler = handler
        self._ack_wait = ack_wait
        self.queue = Queue(bus, pool)
        self._pool, self._name = pool, this_process()
        items = self.queue.item_consumer(ack_wait)
        self._rank = rank
        self._pull = rank.pull(items, concurrency) if rank else Pull(bus, items, concurrency)
        self._sharing = sharing
        self._bulkhead = Bulkhead(concurrency)
        self._active: dict[asyncio.Task[None], Delivery] = {}
        self._running: dict[str, Item] = {}
        """By key: the runs in flight."""
        self._starts = CrashCounts(bus, pool)
        self._superseded: set[str] = set()
        self._renewed_at, self._used = time.monotonic(), time.process_time()
        # All items share one hold: the process has renewed all of them in time, or none.
        self._hold = DeliveryHold(ack_wait * 0.8)

    @property
    def active(self) -> int:
        """The number of items in flight."""
        return len(self._active)

    def wrote(self, key: str, ref: ObjectRef, version: str) -> bool:
        """Whether a run in flight has written this version. The next run reads that one, or a newer one."""
        item = self._running.get(key)
        return item is not None and item.hold.held() and (ref, version) in item.writes

    async def run(self) -> None:
        """Process items until cancelled; then wait a short time for runs in flight, and nak the others."""

        def ended(task: asyncio.Task[None]) -> None:
            delivery = self._active.pop(task)
            self._pull.done()
            metrics.in_flight.labels(self._pool).dec()
            if not task.cancelled() and (error := task.exception()):
                logger.error("%s: %s", delivery.subject, error, exc_info=error)

        self._hold.renew()
        renewing = asyncio.create_task(self._renew(), name=f"{self._pool}: renew items")
        try:
            # A restarted server may have lost pending acknowledgements, and redeliver our items to others.
            with self._bus.on_disconnect(self._abandon_items):
                async for batch in self._pull.deliveries():
                    for delivery in batch:
                        if not self._hold.held():
                            # Renewals have just failed: it may have waited for longer than its ack wait.
                            self._pull.done()
                            continue
                        task = asyncio.create_task(self._process(delivery), name=delivery.subject)
                        self._active[task] = delivery
                        task.add_done_callback(ended)
                        metrics.in_flight.labels(self._pool).inc()
        finally:
            if self._active:
                await asyncio.wait(list(self._active), timeout=_GRACE)
            if left := dict(self._active):
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=1)
            for task, delivery in left.items():
                # A run that has not ended yet keeps its item, so that no other process begins meanwhile.
                if task.done():
                    with contextlib.suppress(WindowboxError):
                        await delivery.nak()
            await self._requeue_superseded()
            renewing.cancel()

    async def _process(self, delivery: Delivery) -> None:
        """Run, and acknowledge the item. An object with another wish by then is enqueued again."""
        key = subjects.without(f"work.{self._pool}", delivery.subject)
        try:
            wished = self._carried(delivery) or await self._wished(key)
            cut_off = await self._fulfil(delivery, key, wished) if wished else False
            await delivery.ack()
            await self._requeue_if_wished(key, delivery.sequence, wished, cut_off=cut_off)
        except Superseded as error:
            logger.warning("%s: %s", key, error)
            self._mark_superseded(key)
            await self._requeue_superseded()
        except TransientError as error:
            logger.warning("%s: not acknowledged, will be redelivered: %s", key, error)

    def _carried(self, delivery: Delivery) -> _Wished | None:
        """The wish that the item repeats, if nobody has had time to wish for more."""
        sequence, waited = int(delivery.headers.get(WISH, 0)), self._bus.clock.rough() - delivery.time
        if not sequence or delivery.number > 1 or waited > FRESH:
            return None
        return _Wished(Wish.decoded(delivery.data), sequence, delivery.time, delivery.headers)

    async def _wished(self, key: str) -> _Wished | None:
        stored = await self._wish(key)
        if stored is None:
            return None
        return _Wished(Wish.decoded(stored.data), stored.sequence, instant(stored.time), stored.headers)

    async def _fulfil(self, delivery: Delivery, key: str, wished: _Wished) -> bool:
        """Run once. Returns whether the next run has to insist, should another wish have come meanwhile."""
        # The run before may have been cut off after it had removed the operation annotation.
        cut_off = delivery.number > 1 or CUT_OFF in delivery.headers
        wish = wished.wish.after_crash() if cut_off else wished.wish
        item = Item(key, wish, wished.sequence, delivery.number, self._hold)
        start: contextlib.AbstractAsyncContextManager[bool] = contextlib.nullcontext(True)
        if delivery.number > 1:  # it may have crashed its worker
            guilty = functools.partial(self._is_guilty, item)
            start = self._starts.counted(key, wished.sequence, delivery.number, guilty)
        self._running[key] = item
        try:
            async with start as allowed:
                if not allowed:
                    await self._quarantine(item)
                    return False
                outcome = await self._run(item, wished)
                return bool(outcome.requeue and outcome.requeue.wish.insist)
        finally:
            if self._running.get(key) is item:
                del self._running[key]

    async def _run(self, item: Item, wished: _Wished) -> Outcome:
        """Call the handler, schedule the requeue that it asks for, and write the record."""
        cluster = self._sharing(subjects.ref(item.key)) if self._sharing else RUNTIME
        # The runtime cluster needs no share: while it is slow, no object can be reconciled.
        turn = contextlib.nullcontext() if cluster == RUNTIME else self._bulkhead.turn("", cluster, item.key)
        started, clock = datetime.now(UTC), time.perf_counter()
        waited = max(0.0, self._bus.clock.rough() - wished.at)
        metrics.bus_latency.labels(self._pool).observe(waited)
        with tracing.span(f"run {self._pool}", wished.headers.get(TRACE, ""), key=item.key) as trace:
            try:
                async with turn:
                    outcome = await self._handler.handle(item)
            except (Superseded, Unreachable):
                raise
            except Exception as error:  # TimeoutError and Waiting of `turn`, or a bug of the handler
                outcome = outcome_of(error, item, cluster)
            item.check()
            if self._rank:
                self._rank.note(outcome)
            took = time.perf_counter() - clock
            metrics.runs.labels(self._pool, outcome.result).observe(took)
            if requeue := outcome.requeue:
                wish_then = requeue.wish.noted(requeue.why or outcome.note)
                await self.queue.schedule(item.key, wish_then, requeue.after, asked=item.wish.asked)
            elif isinstance(outcome, Done) and outcome.waited:
                await self.queue.unschedule(item.key, before=wished.at)
            record = RunRecord(
                pool=self._pool,
                key=item.key,
                wish=item.wish,
                wish_sequence=item.wish_sequence,
                delivery=item.delivery,
                waited=waited,
                started=started,
                seconds=took,
                process=self._name,
                outcome=outcome.result,
                reads=item.reads,
                calls=item.calls,
                note=outcome.note,
                trace=trace,
            )
            await self._journal(record)
        return outcome

    async def _journal(self, record: RunRecord) -> None:
        # Calls are left out of a record that does not fit into one message beside its headers.
        limit = self._bus.max_payload - 4096
        data = b"" if crowded(record.calls, limit) else record.encoded()
        if not data or len(data) > limit:
            data = record.model_copy(update={"calls": [], "calls_omitted": True}).encoded()
        await self._bus.publish(subjects.run(self._pool, record.key), data)

    async def _requeue_if_wished(
        self, key: str, item: int, fulfilled: _Wished | None, *, cut_off: bool
    ) -> None:
        """Delete the wish that is fulfilled. If there is another by now, enqueue the object again.

        A wish that came before the item was acknowledged could not be enqueued.
        """
        while True:
            try:
                if fulfilled and await self._bus.delete(streams.TRIGGERS, fulfilled.sequence):
                    return
                await self.queue.removed(item)
                if await self._wish(key):
                    await self.queue.enqueue(key, cut_off=cut_off)
                return
            except TransientError as error:
                # The item is acknowledged: it will not be redelivered.
                logger.info("%s: again in %s s: %s", key, _AGAIN, error)
                await asyncio.sleep(_AGAIN)

    async def _quarantine(self, item: Item) -> None:
        logger.error(
            "%s: in quarantine: its runs crashed or blocked their process %d times", item.key, crashcounts.MAX
        )
        metrics.quarantine.labels(self._pool).inc()
        await self._handler.quarantine(item)
        note = "set aside, because its runs ended their process; it is taken up again then"
        await self.queue.schedule(item.key, Wish(reason=Reason.QUARANTINED, note=note), _QUARANTINE_SECONDS)

    def _is_guilty(self, item: Item) -> bool:
        """Whether this item blocked the event loop until its delivery expired."""
        if item.hold.held() or not (item.hold.stalled or self._is_stalled()):
            return False
        culprit = stalls.culprit(within=4 * self._ack_wait)
        if culprit.startswith("work."):
            return culprit == subjects.item(self._pool, item.key)
        # Unknown. The process may have been stopped, or have got no CPU time, on a busy machine.
        return item.hold.busy or self._was_busy()

    def _is_stalled(self) -> bool:
        """Whether the renewing task is overdue: the event loop is blocked, or the process was stopped."""
        return time.monotonic() - self._renewed_at > self._ack_wait * 0.6

    def _was_busy(self) -> bool:
        """Whether the process has used much CPU time since the last renewal."""
        return time.process_time() - self._used > self._ack_wait * 0.5

    async def _wish(self, key: str) -> Stored | None:
        return await self._bus.last(streams.TRIGGERS, subjects.wish(self._pool, key))

    async def _renew(self) -> None:
        """Renew all items in flight before their ack wait is over."""
        interval = self._ack_wait / 5
        while True:
            stalled, busy = self._is_stalled(), self._was_busy()
            self._renewed_at, self._used = time.monotonic(), time.process_time()
            if not self._hold.held():
                self._hold.stalled, self._hold.busy = stalled, busy
                self._abandon_items()
            sent = time.monotonic()
            deliveries = list(self._active.values())
            for delivery in deliveries:
                with contextlib.suppress(WindowboxError):
                    await delivery.in_progress()
            # The server has got the renewals if it answers a later request. In a cluster, the leader of the
            # consumer has to answer, and a stored message proves that it has a quorum.
            proof, patience = subjects.start(self._pool, "alive"), self._ack_wait / 10
            ask = functools.partial(self._bus.last, streams.JOURNAL, proof, patience)
            with contextlib.suppress(WindowboxError):
                if not deliveries:
                    sent = await self._bus.alive(sent - interval, ask)
                elif self._bus.clustered:
                    await deliveries[-1].keep_for_sure(patience)
                    await self._bus.publish(proof, b"", timeout=patience)
                else:
                    await ask()
                self._hold.renew(sent)
                await self._requeue_superseded()
                await self._starts.withdraw()
            # All tasks with this interval wake at the same moment: an idle process wakes once for them.
            left = interval - asyncio.get_running_loop().time() % interval
            await asyncio.sleep(left if left > interval / 10 else left + interval)

    def _abandon_items(self) -> None:
        """Cancel all runs: their items have not been renewed in time, and are redelivered to others."""
        if self._active:
            lost = len(self._active)
            logger.warning(
                "%s: the bus was unreachable for too long; %d items will be redelivered", self._pool, lost
            )
        self._hold = DeliveryHold(self._hold.limit)
        self._pull.restart()
        for task, delivery in self._active.items():
            task.cancel()
            self._mark_superseded(subjects.without(f"work.{self._pool}", delivery.subject))

    def _mark_superseded(self, key: str) -> None:
        # A late write may have undone a newer run's: the object is reconciled once more.
        # Not so if it blocked the event loop: it wrote nothing, and would block again.
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


def crowded(calls: list[Call], limit: int) -> bool:
    """Whether the answers of the calls certainly need more bytes.

    To encode them only to find that out would hold the event loop ten times as long.
    """
    size = 0
    for call in calls:
        with contextlib.suppress(TypeError):  # of a type that only the record's model encodes
            size += len(orjson.dumps(call.answer))
    return size > limit


def outcome_of(error: Exception, item: Item, cluster: str) -> Outcome:
    """The outcome of a run that raised `error`, for an object whose runs wait for `cluster`."""
    match error:
        case Waiting():
            note = f"waiting for a turn: runs of {cluster} take long, or others that do have all turns"
            return Unfinished(note, RequeueAfter(item.wish, error.retry_after or _STOPPED))
        case TimeoutError() if cluster != RUNTIME:
            note = f"stopped, because runs of {cluster} take too long"
            return Unfinished(note, RequeueAfter(item.wish.insisting(), _STOPPED))
        case _:
            # A bug: this object backs off, the others go on.
            logger.error("%s: run failed", item.key, exc_info=error)
            attempt = item.wish.attempt + 1
            retry = RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt).insisting(), backoff(attempt))
            return Failed(f"{type(error).__name__}: {error}", retry)
