"""Three servers that die, stand still and step down under load: nothing is lost or done twice at once."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from pathlib import Path

from bus.transport.connection import connected
from tests.servers.bus.handlers import overlaps
from tests.servers.bus.wishing import Wishing, rests
from tests.servers.bus.workers import workers
from tests.support.natscluster import NatsCluster
from tests.support.natsserver import ensured
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.settings.bussettings import Access

logger = logging.getLogger(__name__)

_ROUNDS = 100 if os.environ.get("CHAOS") == "long" else 2
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
                async with wishing.going_on(_OBJECTS, patience=90):
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
