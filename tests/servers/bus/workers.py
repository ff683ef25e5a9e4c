"""Worker processes, and the record of their runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import signal
import time
from collections.abc import AsyncIterator

from bus import streams
from bus.leases import elections
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from tests.servers.bus import programs
from tests.servers.bus.handlers import EVENT, POOL, Said, Story, key, waiting
from tests.support.forked import Piped
from tests.support.running import stopped
from windowbox.errors import WindowboxError
from windowbox.settings.bussettings import Access


class Workers:
    """As many worker processes as a test starts; none outlives it."""

    def __init__(self, access: Access, ack_wait: float) -> None:
        self.story = Story()
        self._access = access
        self._ack_wait = ack_wait
        self._started: list[Piped] = []
        self._readers: list[asyncio.Task[None]] = []

    async def start(self, namespace: str = "") -> Piped:
        """One more, in a network namespace if one is named."""
        ca = str(self._access.ca or "")
        process = Piped(programs.run_in, namespace, "work", self._access.url, str(self._ack_wait), ca)
        await process.start()
        self._started.append(process)
        self._readers.append(asyncio.create_task(self._read(process)))
        return process

    @staticmethod
    async def kill(process: Piped) -> None:
        process.kill()
        await process.wait()

    @staticmethod
    def open_gate(process: Piped) -> None:
        process.say(b"")

    async def _read(self, process: Piped) -> None:
        async for line in process.lines:
            self.story.add(Said(**json.loads(line)))

    async def end(self) -> None:
        for process in self._started:
            process.send_signal(signal.SIGCONT)
            process.kill()
            await process.wait()
        await asyncio.gather(*self._readers)


@contextlib.asynccontextmanager
async def workers(bus: str | Access, *, ack_wait: float = 1.5) -> AsyncIterator[Workers]:
    crew = Workers(Access(bus) if isinstance(bus, str) else bus, ack_wait)
    try:
        yield crew
    finally:
        await crew.end()


class Wishing:
    """Wishes for objects, and how long each waits until it is fulfilled."""

    def __init__(self, bus: Bus, crew: Workers, what: str = "web") -> None:
        self.wished = 0
        self.over = False
        """No further wishes are made."""
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
            while True:
                with contextlib.suppress(WindowboxError):
                    await self._queue.wish(key(name), EVENT)
                    break
                await asyncio.sleep(0.2)  # like those whose delivery comes again until it is settled
            wished = time.monotonic()
            self.wished += 1
            story = self._crew.story.all
            while not any(s.short == f"end {name}" and s.at >= begun for s in story[-2000:]):  # noqa: ASYNC110
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
        """The state of the queue, to diagnose a failure."""
        reported = [f"{one}: {await waiting(self._bus, one)}" for one in (streams.TRIGGERS, streams.WORK)]
        consumer = await self._bus.api(f"CONSUMER.INFO.{streams.WORK}.pool-{POOL}")
        stream = await self._bus.api(f"STREAM.INFO.{streams.WORK}")
        return f"{reported}, {consumer}, {stream['state']}"

    def figures(self) -> str:
        waited = sorted(self._waited)
        middle, late = waited[len(waited) // 2], waited[int(len(waited) * 0.99)]
        figures = f"p50 {middle:.3f} s, p99 {late:.3f} s, longest {waited[-1]:.1f} s"
        return f"{self.wished} wishes: {figures}; swept after elections: {self._swept}"
