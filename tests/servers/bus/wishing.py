"""Those who wish without a pause, and how long they wait."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator

from bus import streams
from bus.leases import elections
from bus.messages import Reason, Wish
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from tests.servers.bus.handlers import POOL, key
from tests.servers.bus.test_pool import at_rest, waiting
from tests.servers.bus.workers import Workers
from tests.support.running import stopped
from windowbox.errors import WindowboxError


async def rests(bus: Bus) -> bool:
    with contextlib.suppress(WindowboxError):
        return await at_rest(bus)
    return False


class Wishing:
    """Those who wish, and what became of their wishes."""

    def __init__(self, bus: Bus, crew: Workers, what: str = "web") -> None:
        self.wished = 0
        self.over = False
        """Nobody begins to wish any more."""
        self._what = what
        self._crew = crew
        self._bus = bus
        self._queue = Queue(bus, POOL)
        self._waited: list[float] = []
        self._swept = 0

    @contextlib.asynccontextmanager
    async def going_on(self, objects: int, patience: float, *, sweeping: bool = False) -> AsyncIterator[None]:
        """Wish for so many objects; in the end, wait until each wish has been fulfilled."""
        wishes = [asyncio.create_task(self._keep_wishing(number)) for number in range(objects)]
        sweep = [asyncio.create_task(self._sweep())] if sweeping else []
        try:
            yield
            self.over = True
            _, late = await asyncio.wait(wishes, timeout=patience)
            assert not late, f"{len(late)} wishes are not fulfilled after {patience} s: {await self._left()}"
        finally:
            await stopped(*wishes, *sweep)

    async def _keep_wishing(self, number: int) -> None:
        """Wish for an object; as soon as it was run, for the same object again."""
        name = f"{self._what}-{number}"
        while not self.over:
            begun = time.monotonic()
            await self._wish(name)
            wished = time.monotonic()
            self.wished += 1
            while not self._has_run(name, begun):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            self._waited.append(time.monotonic() - wished)
            await asyncio.sleep(random.uniform(0, 0.1))  # wishes come at uneven intervals

    async def _sweep(self) -> None:
        """After elections, find wishes whose items got lost, as a worker does. Never by time alone."""
        async with contextlib.aclosing(elections.sweeps(self._bus, math.inf, math.inf)) as due:
            async for age in due:
                while age == 0:
                    try:
                        self._swept += await self._queue.sweep(age)
                        break
                    except WindowboxError:
                        await asyncio.sleep(1)  # servers are being elected

    async def _left(self) -> str:
        """What the queue is like, for those who have to find out why."""
        told = [
            f"{stream}: {await waiting(self._bus, stream)}" for stream in (streams.TRIGGERS, streams.WORK)
        ]
        consumer = await self._bus.api(f"CONSUMER.INFO.{streams.WORK}.pool-{POOL}")
        stream = await self._bus.api(f"STREAM.INFO.{streams.WORK}")
        return f"{told}, {consumer}, {stream['state']}"

    async def _wish(self, name: str) -> None:
        while True:
            try:
                await self._queue.wish(key(name), Wish(reason=Reason.EVENT))
                return
            except WindowboxError:
                # Like those whose delivery comes again until it is settled.
                await asyncio.sleep(0.2)

    def _has_run(self, name: str, since: float) -> bool:
        return any(s.short == f"end {name}" and s.at >= since for s in reversed(self._crew.story.all[-2000:]))

    def figures(self) -> str:
        waited = sorted(self._waited)
        middle, late = waited[len(waited) // 2], waited[int(len(waited) * 0.99)]
        figures = f"p50 {middle:.3f} s, p99 {late:.3f} s, longest {waited[-1]:.1f} s"
        return f"{self.wished} wishes: {figures}; swept after elections: {self._swept}"
