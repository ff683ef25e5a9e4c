"""Worker processes that die, hang, or are cut off."""

from __future__ import annotations

import asyncio
import itertools
import signal

from bus import intents, streams, subjects
from bus.messages import Wish
from bus.transport.connection import Bus, connected
from bus.workqueue.queue import Queue
from tests.servers.bus.handlers import EVENT, POOL, comes_to_rest, key, overlaps, waiting, wish, working
from tests.servers.bus.workers import workers
from tests.support.natscluster import on_three
from tests.support.natsserver import NatsServer, port_of
from tests.support.proxy import proxy
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.settings.bussettings import Access


@on_three()
@rule("V-9")
async def test_a_run_that_died_with_its_process_is_finished_by_another(bus: Bus, nats_url: str) -> None:
    async with workers(nats_url) as crew:
        first = await crew.start()
        await wish(bus, "gated")
        await crew.story.until("begin gated")
        await crew.kill(first)
        crew.open_gate(await crew.start())
        await crew.story.until("end gated")
        await comes_to_rest(bus)


@rule("V-3")
async def test_the_sweep_enqueues_a_wish_without_an_item(bus: Bus) -> None:
    # What a crash between settling an item and looking for another wish leaves behind.
    await bus.publish(subjects.wish(POOL, key("web")), EVENT.encoded())
    async with working(bus) as pool:
        assert await pool.queue.sweep(older_than=3600) == 0
        assert await pool.queue.sweep(older_than=-1) == 1
        await pool.end("web")
        await comes_to_rest(bus)


async def test_a_sweep_of_many_enqueues_only_lost_items(bus: Bus) -> None:
    queue, keys = Queue(bus, POOL), [key(f"web-{number}") for number in range(150)]
    await asyncio.gather(*(queue.wish(one, EVENT) for one in keys))
    lost = [keys[0], keys[-1]]
    for one in lost:
        await bus.api("STREAM.PURGE.WORK", {"filter": subjects.item(POOL, one)})
    assert await queue.sweep(older_than=-1) == 2
    assert await queue.sweep(older_than=-1) == 0


async def test_a_sweep_does_not_repeat_an_item_in_progress(bus: Bus) -> None:
    async with working(bus) as pool:
        await pool.begin("gated")
        assert await pool.queue.sweep(older_than=-1) == 1
        await pool.end("gated")
        await comes_to_rest(bus)
    assert pool.story.times("begin gated") == 1


async def test_an_item_that_kills_its_workers_is_quarantined(bus: Bus, nats_url: str) -> None:
    neighbours = [f"web-{number}" for number in range(5)]
    for name in ["deadly", *neighbours]:
        await wish(bus, name)
    async with workers(nats_url, ack_wait=0.7) as crew:
        for death in range(1, 4):
            worker = await crew.start()
            await crew.story.until("begin deadly", times=death)
            assert await worker.wait() == -signal.SIGKILL
        last = await crew.start()
        await crew.story.until("aside deadly")
        await comes_to_rest(bus)
        assert {s.name for s in crew.story.all if s.word == "end"} == set(neighbours)
        assert {s.name for s in crew.story.all if s.word == "aside"} == {"deadly"}
        assert await waiting(bus, streams.LATER) == [subjects.later(POOL, key("deadly"))]

        await wish(bus, "deadly")
        await crew.story.until("begin deadly", times=4)
        assert await last.wait() == -signal.SIGKILL


async def test_workers_that_lost_the_bus_quarantine_nothing(nats: NatsServer, nats_bus: Bus) -> None:
    async with working(nats_bus, ack_wait=1) as pool:
        await pool.wish("gated")
        # One more than an item may take workers down.
        for begun in range(1, 5):
            await pool.story.until("begin gated", times=begun)
            await asyncio.to_thread(nats.restart)
        await pool.end("gated")
        await comes_to_rest(nats_bus)
    assert pool.story.times("aside gated") == 0


async def test_an_item_that_blocks_its_workers_is_quarantined(bus: Bus, nats_url: str) -> None:
    names = [f"web-{number}" for number in range(5)]
    async with workers(nats_url, ack_wait=1.0) as crew:
        for _ in range(2):
            await crew.start()
        # Its owner changes it all the time, so that each attempt has a wish of its own.
        for attempt in range(1, 5):
            await wish(bus, "hanging", Wish(reason=str(attempt)))
            for name in names:
                await wish(bus, name)
            story = crew.story
            await eventually(lambda: story.times("aside hanging") + story.times("begin hanging") >= attempt)  # noqa: B023
            if crew.story.times("aside hanging"):
                break
        await crew.story.until("aside hanging")
        assert crew.story.times("begin hanging") <= 3
        await comes_to_rest(bus)
        assert {s.name for s in crew.story.all if s.word == "aside"} == {"hanging"}
        assert {s.name for s in crew.story.all if s.word == "end"} >= set(names)


@rule("V-8", "B-7")
async def test_an_item_whose_worker_is_frozen_is_not_quarantined(bus: Bus, nats_url: str) -> None:
    async with workers(nats_url, ack_wait=0.5) as crew:
        worker = await crew.start()
        await wish(bus, "gated")
        for number in range(1, 5):
            await crew.story.until("begin gated", times=number)
            worker.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1)  # frozen for longer than its items are kept for it
            worker.send_signal(signal.SIGCONT)
        await crew.story.until("begin gated", times=5)
        crew.open_gate(worker)
        await crew.story.until("end gated")
        assert crew.story.times("aside gated") == 0


async def test_a_worker_that_was_frozen_overwrites_nothing(bus: Bus, nats_url: str) -> None:
    async with workers(nats_url, ack_wait=1.0) as crew:
        frozen = await crew.start()
        await wish(bus, "reporting")
        await crew.story.until("begin reporting")
        frozen.send_signal(signal.SIGSTOP)
        awake = await crew.start()
        crew.open_gate(awake)
        await crew.story.until("end reporting")
        crew.open_gate(frozen)
        frozen.send_signal(signal.SIGCONT)

        # It asks for another run: what it did late in the world might have undone something.
        story = crew.story.all
        await eventually(lambda: any((s.short, s.reason) == ("end reporting", "late report") for s in story))
        await comes_to_rest(bus)
        late = [s for s in crew.story.all if s.process == frozen.pid and s.reason == "event"]
        assert [s.word for s in late] == ["begin", "left"]
        assert (await intents.last(bus, key("reporting"))).intent is not None


@rule("B-7")
async def test_a_thawed_worker_starts_no_overdue_item(bus: Bus, nats_url: str) -> None:
    async with workers(nats_url, ack_wait=1.0) as crew:
        frozen = await crew.start()
        await wish(bus, "web")
        await crew.story.until("end web")
        await comes_to_rest(bus)
        frozen.send_signal(signal.SIGSTOP)
        await wish(bus, "gated")

        async def delivered() -> bool:
            info = await bus.api(f"CONSUMER.INFO.WORK.pool-{POOL}")
            return int(info["delivered"]["consumer_seq"]) >= 2

        await eventually(delivered)
        awake = await crew.start()
        await crew.story.until("begin gated")

        frozen.send_signal(signal.SIGCONT)
        # It is awake, and past what was delivered to it, when it has begun something else. What it is given a
        # moment too early comes to the other one, and waits there behind the gate: so there is always more.
        for number in itertools.count():
            await wish(bus, f"web-{number}")
            await asyncio.sleep(0.05)  # the pace of the wishes
            if crew.story.all[-1].process == frozen.pid:
                break
        crew.open_gate(awake)
        await crew.story.until("end gated")
        assert crew.story.times("begin gated") == 1


@on_three()
@rule("B-7", "V-10")
async def test_a_worker_that_is_cut_off_stops_before_another_one_begins(bus: Bus, nats_url: str) -> None:
    async with (
        proxy(port_of(nats_url)) as line,
        connected(Access(f"nats://127.0.0.1:{line.port}")) as far,
        working(far, who=1, ack_wait=2) as cut_off,
    ):
        await wish(bus, "gated")
        await cut_off.story.until("begin gated")
        line.hang()
        async with working(bus, story=cut_off.story, who=2, ack_wait=2) as near:
            await near.end("gated")
            line.resume()
            await eventually(lambda: near.story.all[-1].reason == "late report")
    assert [said.word for said in near.story.all[:4]] == ["begin", "left", "begin", "end"]
    assert overlaps(near.story.all) == []


@on_three()
@rule("B-7", "LB-2-serial")
async def test_no_object_is_ever_worked_on_twice_at_once(bus: Bus, nats_url: str) -> None:
    names = [f"web-{number}" for number in range(8)]
    async with workers(nats_url, ack_wait=1.0) as crew:
        alive = [await crew.start(), await crew.start()]
        for turn in range(12):
            reported = len(crew.story.all)
            for name in names:
                await wish(bus, name)
            if turn % 4 == 1:
                await crew.kill(alive.pop(0))
                alive.append(await crew.start())
            await eventually(lambda: len(crew.story.all) > reported)  # noqa: B023
        await comes_to_rest(bus)
        assert {said.name for said in crew.story.all if said.word == "end"} == set(names)
        survivors = {process.pid for process in alive}
        assert overlaps([said for said in crew.story.all if said.process in survivors]) == []
