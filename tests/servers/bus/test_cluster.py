"""Three servers, of which one falls behind, dies, or steps down during requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.leases import elections
from bus.messages import Wish
from bus.transport import consumers
from bus.transport import pull as pulling
from bus.transport.connection import Bus, Occupied, WrongSequence, connected
from bus.transport.pull import Pull
from bus.workqueue.queue import Queue
from tests.servers.bus.handlers import POOL, comes_to_rest, key, overlaps, working
from tests.servers.bus.workers import Wishing, workers
from tests.support.natscluster import NatsCluster, on_three
from tests.support.natsserver import ensured, started
from tests.support.rules import rule
from tests.support.running import eventually, running
from windowbox.errors import TransientError, Unreachable, WindowboxError
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


@pytest.fixture
def cluster(nats_cluster: NatsCluster) -> NatsCluster:
    nats_cluster.clear()
    return nats_cluster


@contextlib.asynccontextmanager
async def behind(cluster: NatsCluster, buses: list[Bus]) -> AsyncIterator[tuple[Bus, Bus]]:
    """A stopped server that answers pending requests before it has caught up, and another server."""
    leader = (await buses[0].api(f"STREAM.INFO.{streams.INTENTS}"))["cluster"]["leader"]
    late = (int(leader.removeprefix("n")) + 1) % 3
    process = cluster.members[late].process
    assert process
    process.send_signal(signal.SIGSTOP)
    try:
        yield buses[(late + 1) % 3], buses[late]
    finally:
        process.send_signal(signal.SIGCONT)


async def test_a_server_that_is_behind_gives_no_old_answer(cluster: NatsCluster) -> None:
    async with speaking(cluster) as buses:
        for turn in range(3):
            async with behind(cluster, buses) as (near, far):
                for number in range(100):
                    await near.publish(subjects.intent(key(f"web-{turn}-{number}")), b"x" * 10_000)
                    sequence = await near.publish(subjects.intent(key("last")), b"{}")
                last = far.last(streams.INTENTS, subjects.intent(key("last")))
                reading = asyncio.gather(last, snapshot(far))
                await asyncio.sleep(0.05)  # it is on its way, and waits for the server
            found, listed = await reading
            assert found
            assert found.sequence == sequence
            assert sum("web" in subject.rsplit(".")[-1] for subject in listed) == 100 * (turn + 1)


async def snapshot(bus: Bus) -> list[str]:
    """The subjects of all reports."""
    return [one.subject async for one in consumers.snapshot(bus, streams.INTENTS, [subjects.intent(">")])]


async def test_an_election_leaves_the_requested_number_unchanged(
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
    """A deposed leader may have refused their items, and the next sweep is due in an hour."""
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
                with contextlib.suppress(WindowboxError):
                    await buses[1].api(f"STREAM.LEADER.STEPDOWN.{streams.WORK}")
                await asyncio.wait([due], timeout=2)
        assert due.result() == 0.0
        await sweeps.aclose()


@on_three()
@rule("V-4")
async def test_a_wish_right_after_a_run_needs_no_sweep(bus: Bus) -> None:
    """Each wish comes as soon as the last run has ended, when its item is about to be acknowledged."""
    async with working(bus) as pool:
        story = pool.story

        async def wish_again_and_again(name: str) -> None:
            for turn in range(1, 16):
                await pool.wish(name, Wish(reason=str(turn)))
                ended = (f"end {name}", str(turn))
                await story.until_so(lambda: any((s.short, s.reason) == ended for s in story.all), f"{ended}")  # noqa: B023
                await asyncio.sleep(random.uniform(0, 0.01))

        await asyncio.gather(*(wish_again_and_again(f"web-{number}") for number in range(8)))
        await comes_to_rest(bus)


@on_three()
async def test_an_item_that_was_settled_makes_room_for_the_next(bus: Bus) -> None:
    queue = Queue(bus, POOL)
    pull = Pull(bus, queue.item_consumer(10), 1)
    await queue.enqueue(key("web"))
    turns = 0
    async for [delivery] in pull.deliveries():
        await delivery.ack()
        await queue.removed(delivery.sequence)
        # Occupied would mean that it waits already.
        await bus.publish(subjects.item(POOL, key("web")), b"")
        pull.done()
        if (turns := turns + 1) == 50:
            break


@on_three()
async def test_a_stored_message_is_read_at_once_by_all_connections(bus: Bus, nats_url: str) -> None:
    subject = subjects.intent(key("web"))
    async with contextlib.AsyncExitStack() as stack:
        urls = nats_url.split(",")
        readers = [await stack.enter_async_context(connected(Access(url))) for url in urls]
        for _ in range(60):
            sequence = await bus.publish(subject, b"{}")
            assert sequence
            found = await asyncio.gather(
                *(reader.last(streams.INTENTS, subject) for reader in readers),
                *(reader.at(streams.INTENTS, sequence) for reader in readers),
            )
            assert [last and last.sequence for last in found] == [sequence] * 2 * len(urls)


@on_three()
async def test_a_deleted_message_is_not_read_again(bus: Bus) -> None:
    subject = subjects.intent(key("web"))
    for _ in range(30):
        sequence = await bus.publish(subject, b"{}")
        assert sequence
        assert await bus.delete(streams.INTENTS, sequence) in (True, False)
        assert await bus.last(streams.INTENTS, subject) is None
        assert not await bus.delete(streams.INTENTS, sequence)


@on_three()
async def test_a_reading_misses_nothing_that_was_stored_before(bus: Bus) -> None:
    for number in range(10):
        for filler in range(20):
            subject = subjects.intent(key(f"web-{number}-{filler}"))
            await bus.publish(subject, b"{}")
        found = set(await snapshot(bus))
        assert subject in found
        assert len(found) == 20 * (number + 1)


@on_three()
@rule("V-8")
async def test_one_of_two_concurrent_writers_gets_a_conflict(bus: Bus) -> None:
    subject = subjects.intent(key("web"))
    expected = 0
    for _ in range(30):
        answers = await asyncio.gather(
            *(bus.publish(subject, b"%d" % who, expect_last=expected) for who in range(4)),
            return_exceptions=True,
        )
        won = [answer for answer in answers if isinstance(answer, int)]
        assert len(won) == 1
        assert [type(a) for a in answers if not isinstance(a, int)] == [WrongSequence] * 3
        expected = won[0]


async def test_a_full_stream_is_no_item_that_waits_already(bus: Bus) -> None:
    config = (await bus.api(f"STREAM.INFO.{streams.WORK}"))["config"]
    await bus.api(f"STREAM.UPDATE.{streams.WORK}", {**config, "max_bytes": 1})
    with pytest.raises(TransientError, match="maximum bytes exceeded") as refused:
        await bus.publish(subjects.item(POOL, key("web")), b"")
    assert not isinstance(refused.value, Occupied)


async def test_a_message_that_must_not_be_deleted_is_not_gone(bus: Bus) -> None:
    await bus.api("STREAM.CREATE.kept", {"name": "kept", "subjects": ["kept"], "deny_delete": True})
    sequence = await bus.publish("kept", b"")
    assert sequence
    with pytest.raises(Unreachable, match="not permitted"):
        await bus.delete("kept", sequence)


async def test_a_stream_that_is_not_there_holds_no_answer(bus: Bus) -> None:
    with contextlib.suppress(Unreachable):
        await bus.delete("nowhere", 1)
        raise AssertionError("it was taken for gone")


logger = logging.getLogger(__name__)

_ROUNDS = 100 if os.environ.get("CHAOS") == "long" else 1
"""Every one takes some six seconds."""
_OBJECTS = 12


@rule("V-3", "B-7")
async def test_nothing_is_lost_or_doubled_while_servers_die(tmp_path: Path) -> None:
    """Without any sweep: each wish that was accepted leads to a run by itself."""
    with started(NatsCluster(tmp_path)) as cluster:
        async with connected(Access(cluster.url)) as bus, workers(cluster.url, ack_wait=4) as crew:
            await ensured(bus)
            for _ in range(3):
                await crew.start()
            wishing = Wishing(bus, crew)
            with cluster.unrest(0.7):
                async with wishing.going_on(_OBJECTS, patience=90):
                    for turn in range(_ROUNDS):
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
                        await asyncio.sleep(1)  # the cluster heals before the next server dies
            await comes_to_rest(bus, patience=90)
    assert wishing.wished > 10 * _ROUNDS
    assert overlaps(crew.story.all) == []
    logger.warning("%s", wishing.figures())
