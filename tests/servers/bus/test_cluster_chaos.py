"""Three servers that die, stand still and step down under load: nothing is lost or done twice at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import time
from pathlib import Path

from bus.connection import Access, Bus, connected
from bus.messages import Reason, Wish
from bus.queue import Queue
from tests.servers.bus.handlers import POOL, key, overlaps
from tests.servers.bus.test_pool import at_rest
from tests.servers.bus.workers import Workers, workers
from tests.support.natscluster import NatsCluster
from tests.support.natsserver import ensured
from tests.support.rules import rule
from tests.support.running import eventually, running
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_ROUNDS = 100 if os.environ.get("CHAOS") == "long" else 4
"""Every one takes some six seconds."""
_OBJECTS = 12


@rule("V-3", "B-7")
async def test_nothing_is_lost_or_doubled_while_servers_die(tmp_path: Path) -> None:
    """Without any sweep: each wish that was accepted leads to a run by itself."""
    cluster = NatsCluster(tmp_path)
    cluster.start()
    try:
        async with connected(Access(cluster.url)) as bus, workers(cluster.url, ack_wait=4) as crew:
            await ensured(bus)
            for _ in range(3):
                await crew.start()
            wishing = Wishing(bus, crew)
            with cluster.unrest(0.7):
                async with running(*(wishing.keep_wishing(number) for number in range(_OBJECTS))):
                    for turn in range(_ROUNDS):
                        await harm(cluster, turn)
            await asyncio.to_thread(cluster.wait)
            await eventually(lambda: rests(bus), patience=90)
        assert wishing.wished > 10 * _ROUNDS
        assert overlaps(crew.story.all) == []
        logger.warning("%s", wishing.figures())
    finally:
        cluster.stop()


async def harm(cluster: NatsCluster, turn: int) -> None:
    """One server after the other dies, or stands still, and is back after a while."""
    member = cluster.members[turn % len(cluster.members)]
    assert member.process
    if random.random() < 0.5:
        member.stop(signal.SIGKILL)
        await asyncio.sleep(1.5)  # as long as the outage lasts
        member.start()
    else:
        member.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(3)  # as long as the outage lasts
        member.process.send_signal(signal.SIGCONT)
    await asyncio.to_thread(cluster.wait)
    await asyncio.sleep(1)  # the cluster heals for a while before the next server dies


async def rests(bus: Bus) -> bool:
    with contextlib.suppress(WindowboxError):
        return await at_rest(bus)
    return False


class Wishing:
    """Those who wish, and what became of their wishes."""

    def __init__(self, bus: Bus, crew: Workers) -> None:
        self.wished = 0
        self._crew = crew
        self._queue = Queue(bus, POOL)
        self._waited: list[float] = []

    async def keep_wishing(self, number: int) -> None:
        """Wish for an object; as soon as it was run, for the same object again."""
        name = f"web-{number}"
        while True:
            begun = time.monotonic()
            await self._wish(name)
            wished = time.monotonic()
            self.wished += 1
            while not self._has_run(name, begun):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            self._waited.append(time.monotonic() - wished)
            await asyncio.sleep(random.uniform(0, 0.1))  # wishes come at uneven intervals

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
        return f"{self.wished} wishes: p50 {middle:.3f} s, p99 {late:.3f} s, longest {waited[-1]:.1f} s"
