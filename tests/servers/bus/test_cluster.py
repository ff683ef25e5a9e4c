"""Three servers, of which one falls behind, dies, or steps down while others are asked."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import pytest

from bus import streams, subjects
from bus.leases import elections
from bus.transport import consumers
from bus.transport import pull as pulling
from bus.transport.connection import Bus, connected
from bus.transport.pull import Pull
from tests.servers.bus.handlers import key
from tests.support.natscluster import NatsCluster
from tests.support.natsserver import ensured
from tests.support.running import eventually, running
from windowbox.errors import WindowboxError
from windowbox.settings.bussettings import Access


@contextlib.asynccontextmanager
async def speaking(cluster: NatsCluster) -> AsyncIterator[list[Bus]]:
    """A connection to each of the servers."""
    async with contextlib.AsyncExitStack() as stack:
        buses = [
            await stack.enter_async_context(connected(Access(f"nats://127.0.0.1:{member.port}")))
            for member in cluster.members
        ]
        await ensured(buses[0])
        yield buses


async def follower(bus: Bus, stream: str) -> int:
    """The number of a server that does not lead the stream."""
    leader = (await bus.api(f"STREAM.INFO.{stream}"))["cluster"]["leader"]
    return (int(leader.removeprefix("n")) + 1) % 3


@pytest.fixture
def cluster(nats_cluster: NatsCluster) -> NatsCluster:
    nats_cluster.clear()
    return nats_cluster


@contextlib.asynccontextmanager
async def behind(cluster: NatsCluster, buses: list[Bus]) -> AsyncIterator[tuple[Bus, Bus]]:
    """A server that does not hear for a while, and then answers what it was asked before it catches up."""
    late = await follower(buses[0], streams.INTENTS)
    process = cluster.members[late].process
    assert process
    process.send_signal(signal.SIGSTOP)
    try:
        yield buses[(late + 1) % 3], buses[late]
    finally:
        process.send_signal(signal.SIGCONT)


async def test_a_server_that_is_behind_gives_no_old_answer(cluster: NatsCluster) -> None:
    subject = subjects.intent(key("web"))
    async with speaking(cluster) as buses:
        for _ in range(8):
            async with behind(cluster, buses) as (near, far):
                for _ in range(100):
                    sequence = await near.publish(subject, b"x" * 10_000)
                reading = asyncio.create_task(far.last(streams.INTENTS, subject))
                await asyncio.sleep(0.05)  # it is on its way, and waits for the server
            found = await reading
            assert found
            assert found.sequence == sequence


async def test_reading_from_a_lagging_server_waits(cluster: NatsCluster) -> None:
    async with speaking(cluster) as buses:
        for turn in range(6):
            async with behind(cluster, buses) as (near, far):
                for number in range(100):
                    await near.publish(subjects.intent(key(f"web-{turn}-{number}")), b"x" * 10_000)
                reading = asyncio.create_task(snapshot(far))
                await asyncio.sleep(0.05)  # it is on its way, and waits for the server
            assert await reading == 100 * (turn + 1)


async def snapshot(bus: Bus) -> int:
    found = consumers.snapshot(bus, streams.INTENTS, [subjects.intent(">")])
    return len([stored async for stored in found])


async def test_after_an_election_as_much_is_asked_for_as_before(
    cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of the same size are refused one by one: each makes room for messages."""
    monkeypatch.setattr(pulling, "_EXPIRES", 600.0)
    monkeypatch.setattr(consumers, "heartbeat", lambda _: 300.0)  # nothing begins anew
    consumer = consumers.Consumer(streams.INTENTS, "elected", (subjects.intent(">"),), ack_wait=60)
    taken = 0
    async with speaking(cluster) as (bus, other, _):
        pull = Pull(bus, consumer, 64)

        async def take() -> None:
            nonlocal taken
            async for batch in pull.deliveries():
                taken += len(batch)
                for delivery in batch:
                    await delivery.settle()

        async def publish() -> None:
            for number in range(64):
                await other.publish(subjects.intent(key(f"web-{number}")), b"{}")

        async def has(number: int, requests: int) -> bool:
            with contextlib.suppress(WindowboxError):  # as long as it has no leader
                info = await other.api(f"CONSUMER.INFO.{streams.INTENTS}.elected")
                return (taken, info["num_waiting"]) == (number, requests)
            return False

        await publish()
        async with running(take()):
            await eventually(lambda: has(64, 0))
            for requests in (1, 2):
                pull.done(32)
                await eventually(lambda requests=requests: has(64, requests))  # type: ignore[misc]
            assert (await other.api(f"CONSUMER.LEADER.STEPDOWN.{streams.INTENTS}.elected"))["success"]
            await publish()
            await eventually(lambda: has(128, 0))


@pytest.mark.parametrize("heard", [True, False], ids=["heard-of", "only-seen"])
async def test_wishes_are_enqueued_again_after_an_election(
    cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """Which a leader that was deposed may have refused: no sweep was due for an hour."""
    if heard:
        monkeypatch.setattr(elections, "_LOOK", 3600)
    else:
        monkeypatch.setattr(elections, "ELECTED", "nobody.tells")
        monkeypatch.setattr(elections, "_LOOK", 0.1)
    async with speaking(cluster) as buses:
        sweeps = elections.sweeps(buses[0], 3600, 20.0, deposed=0.1)
        assert await anext(sweeps) == 20.0
        await buses[0].client.flush()
        due = asyncio.ensure_future(anext(sweeps))
        async with asyncio.timeout(60):
            while not due.done():  # the first election may come before the first look
                await elected(buses[1])
                await asyncio.wait([due], timeout=2)
        assert due.result() == 0.0
        await sweeps.aclose()


async def elected(bus: Bus) -> bool:
    """Have the queue's servers choose another leader."""
    with contextlib.suppress(WindowboxError):
        return bool((await bus.api(f"STREAM.LEADER.STEPDOWN.{streams.WORK}"))["success"])
    return False
