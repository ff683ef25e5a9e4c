"""Writes each report as it comes, with one request. What that does not settle, the pool `patch` writes.

Most reports are about the newest version of their object, and succeed at once. The pool repeats the others,
one object at a time: those whose object has changed since, whose server is slow or away, or with Events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from datetime import UTC, datetime

from bus import intents, streams, subjects
from bus.clusters.clusters import Clusters
from bus.messages import TRACE, Call, Read, Reason, Result, RunRecord, StatusIntent, Wish
from bus.transport.connection import Bus
from bus.transport.consumers import Consumer, Delivery
from bus.transport.pull import Pull
from bus.workqueue.pool import this_process
from patchers.statuspatcher import write_status
from windowbox.errors import WindowboxError
from windowbox.models.refs import RUNTIME, ObjectRef
from windowbox.telemetry import metrics, tracing

logger = logging.getLogger(__name__)

_PATIENCE = 2.0
"""Seconds until a slow write is left to the pool, where slow clusters have a share of the slots."""
_SLOW = 300.0
"""Seconds for which all reports of a tenant whose server was slow are left to the pool."""
_EACH = 4
"""Writes to one tenant's server at once; further ones are left to the pool."""
_ACK_WAIT = 10.0


class DirectWrites:
    """Takes reports off INTENTS. Processes share them."""

    def __init__(self, bus: Bus, clusters: Clusters, *, concurrency: int = 64, limited: bool = False) -> None:
        """With `limited`, leave all to the pool, which limits the rate of writes."""
        self._bus = bus
        self._clusters = clusters
        self._limited = limited
        consumer = Consumer(streams.INTENTS, intents.REPORTS, (subjects.intent(">"),), _ACK_WAIT)
        self._pull = Pull(bus, consumer, concurrency)
        self._writing = Counter[str]()
        """By cluster."""
        self._slow: dict[str, float] = {}
        """Clusters whose server was slow, and when they get their next chance."""
        self._process = this_process()

    async def run(self) -> None:
        """Write reports until cancelled. Those not acknowledged by then are redelivered."""
        async with asyncio.TaskGroup() as group:
            async for batch in self._pull.deliveries():
                for delivery in batch:
                    group.create_task(self._take(delivery), name=delivery.subject)

    async def _take(self, delivery: Delivery) -> None:
        key = subjects.without("intent", delivery.subject)
        try:
            with tracing.span("run patch", delivery.headers.get(TRACE, ""), key=key) as trace:
                # A report that is redelivered may have ended its process: the pool counts that.
                if delivery.number > 1 or not await self._settled(key, delivery, trace):
                    await intents.remind(self._bus, key)
            await delivery.settle()
        except WindowboxError as error:
            logger.info("%s: comes again: %s", delivery.subject, error)
        except Exception:  # a report that cannot be read, or a bug that one object triggers
            logger.exception("%s: left to the pool", delivery.subject)
        finally:
            self._pull.done()

    async def _settled(self, key: str, delivery: Delivery, trace: str) -> bool:
        """Whether the report is written, or has nothing to write."""
        if not delivery.data:
            return True
        intent, ref = StatusIntent.model_validate_json(delivery.data), subjects.ref(key)
        if not intent.events and (intent.shown or not intent.patch):
            return True
        if intent.events or not intent.version or self._limited or not self._has_turn(ref):
            return False
        started, clock = datetime.now(UTC), time.perf_counter()
        self._writing[ref.cluster] += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                kube = await self._clusters.get(ref.cluster)
                await write_status(kube, ref, intent.patch, intent.version)
        except TimeoutError:
            self._slow[ref.cluster] = time.monotonic() + _SLOW
            return False
        except WindowboxError:
            return False
        finally:
            self._writing[ref.cluster] -= 1
        took = time.perf_counter() - clock
        waited = max(0.0, self._bus.clock.rough() - took - delivery.time)
        metrics.bus_latency.labels(intents.PATCH).observe(waited)
        metrics.runs.labels(intents.PATCH, Result.SUCCEEDED).observe(took)
        metrics.patches.labels(ref.kind, "status", Result.SUCCEEDED).inc()
        record = RunRecord(
            pool=intents.PATCH,
            key=key,
            wish=Wish(reason=Reason.REPORT),
            wish_sequence=delivery.sequence,
            delivery=delivery.number,
            waited=waited,
            started=started,
            seconds=took,
            process=self._process,
            outcome=Result.SUCCEEDED,
            reads=[Read(stream=streams.INTENTS, subject=delivery.subject, sequence=delivery.sequence)],
            calls=[Call(door="status", request=intent.patch, effect=True)],
            note=str(intent.patch.get("lastOperation", {}).get("state", "")),
            trace=trace,
        )
        await self._bus.publish(subjects.run(intents.PATCH, key), record.encoded())
        return await intents.is_newest(self._bus, key, delivery.sequence)

    def _has_turn(self, ref: ObjectRef) -> bool:
        """Whether the object's server may have one more request: one that is slow may not hold up others."""
        if ref.cluster == RUNTIME:
            return True
        if time.monotonic() < self._slow.get(ref.cluster, 0.0):
            return False
        self._slow.pop(ref.cluster, None)
        return self._writing[ref.cluster] < _EACH
