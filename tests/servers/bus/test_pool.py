"""A pool within this process, on a real server."""

from __future__ import annotations

import asyncio

from bus import streams, subjects
from bus.messages import Reason, RunRecord, Wish
from bus.outcomes import Failed, Outcome, RequeueAfter, Unfinished
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from tests.servers.bus.handlers import POOL, Story, Telling, key, overlaps
from tests.support.natsserver import NatsServer, ensured, made_anew
from tests.support.rules import rule
from tests.support.running import eventually, running, stopped
from windowbox.errors import Unreachable
from windowbox.settings.bussettings import Access

EVENT = Wish(reason=Reason.EVENT)


async def waiting(bus: Bus, stream: str) -> list[str]:
    """The subjects of all messages of the pool that a stream holds."""
    info = await bus.api(f"STREAM.INFO.{stream}", {"subjects_filter": f"*.{POOL}.>"})
    return list(info["state"].get("subjects", ()))


async def at_rest(bus: Bus) -> bool:
    return not await waiting(bus, streams.TRIGGERS) and not await waiting(bus, streams.WORK)


async def records(bus: Bus, name: str) -> list[RunRecord]:
    found = consumers.snapshot(bus, streams.JOURNAL, [subjects.run(POOL, key(name))], history=True)
    return [RunRecord.model_validate_json(stored.data) async for stored in found]


@rule("B-7")
async def test_many_wishes_for_one_object_are_one_item(bus: Bus) -> None:
    for number in range(5):
        await Queue(bus, POOL).wish(key("web"), Wish(reason=f"event {number}"))
    assert await waiting(bus, streams.WORK) == [f"work.test.{key('web')}"]

    story = Story()
    async with running(Pool(bus, POOL, Telling(bus, story.add)).run()):
        await story.until("end web")
        await eventually(lambda: at_rest(bus))
    assert [(said.short, said.reason) for said in story.all] == [
        ("begin web", "event 4"),
        ("end web", "event 4"),
    ]


@rule("V-4", "B-7", "LB-6-collapse")
async def test_wishes_during_a_run_make_one_more_run(bus: Bus) -> None:
    story, queue = Story(), Queue(bus, POOL)
    handler = Telling(bus, story.add)
    async with running(Pool(bus, POOL, handler).run()):
        await queue.wish(key("gated"), EVENT)
        await story.until("begin gated")
        for _ in range(5):
            await queue.wish(key("gated"), EVENT)
        handler.gate.set()
        await story.until("end gated", times=2)
        await eventually(lambda: at_rest(bus))
    assert [said.short for said in story.all] == ["begin gated", "end gated"] * 2
    assert len(await records(bus, "gated")) == 2


@rule("B-7", "LB-2-serial")
async def test_many_objects_are_worked_on_at_once(bus: Bus) -> None:
    story, queue = Story(), Queue(bus, POOL)
    handler = Telling(bus, story.add)
    async with running(Pool(bus, POOL, handler, concurrency=10).run()):
        for number in range(12):
            await queue.wish(key(f"gated-{number}"), EVENT)
        await story.until_so(lambda: len(story.all) == 10, "ten begin")
        handler.gate.set()
        await story.until_so(lambda: len(story.all) == 24, "all have ended")
    assert [said.word for said in story.all[:10]] == ["begin"] * 10


@rule("V-10")
async def test_an_item_stays_ours_as_long_as_its_run_lasts(bus: Bus) -> None:
    story, queue = Story(), Queue(bus, POOL)
    long, short = Telling(bus, story.add), Telling(bus, story.add, who=2)
    async with running(Pool(bus, POOL, long, ack_wait=1).run()):
        await queue.wish(key("gated"), EVENT)
        await story.until("begin gated")
        async with running(Pool(bus, POOL, short, ack_wait=1).run()):
            await queue.schedule(key("much-later"), EVENT, 2.0)
            async with running(run_due(bus, queue)):
                await story.until("end much-later")
            long.gate.set()
            await story.until("end gated")
    assert story.times("begin gated") == 1


async def test_a_graceful_stop_lets_runs_finish(bus: Bus) -> None:
    story = Story()
    handler = Telling(bus, story.add)
    async with running(Pool(bus, POOL, handler).run()) as (work,):
        await Queue(bus, POOL).wish(key("gated"), EVENT)
        await story.until("begin gated")
        work.cancel()
        handler.gate.set()
        await asyncio.wait([work])
    assert story.times("end gated") == 1
    assert await at_rest(bus)


async def test_a_graceful_stop_gives_back_what_takes_too_long(bus: Bus) -> None:
    story = Story()
    async with running(Pool(bus, POOL, Telling(bus, story.add), ack_wait=60).run()) as (work,):
        await Queue(bus, POOL).wish(key("stubborn"), EVENT)
        await story.until("begin stubborn")
        next_one = Telling(bus, story.add, who=2)
        next_one.gate.set()
        async with running(Pool(bus, POOL, next_one, ack_wait=60).run()):
            await stopped(work)
            await story.until("end stubborn")
    assert [said.short for said in story.all] == [
        "begin stubborn", "left stubborn", "begin stubborn", "end stubborn",
    ]  # fmt: skip
    assert overlaps(story.all) == []


async def test_only_a_request_that_was_cut_off_is_run_in_any_case(bus: Bus) -> None:
    story, wishes = Story(), dict[str, list[Wish]]()

    class Noting(Telling):
        async def handle(self, item: Item) -> Outcome:
            wishes.setdefault(subjects.ref(item.key).name, []).append(item.wish)
            return await super().handle(item)

    queue, handler = Queue(bus, POOL), Noting(bus, story.add)
    reasons = {
        "stubborn-asked": Reason.EVENT,
        "stubborn-unfinished": Reason.SWEEP,
        "stubborn-drift": Reason.DRIFT,
        "stubborn-late": Reason.LATE_REPORT,
    }
    async with running(Pool(bus, POOL, handler, ack_wait=60).run()) as (work,):
        for name, reason in reasons.items():
            await queue.wish(key(name), Wish(reason=reason))
            await story.until(f"begin {name}")
        await stopped(work)
    async with running(Pool(bus, POOL, handler, ack_wait=60).run()):
        await story.until_so(lambda: len(story.all) > 2 * len(reasons), "one begins again")
        first = story.all[2 * len(reasons)].name
        for name in reasons:
            await queue.wish(key(name), Wish(reason=Reason.LATE_REPORT))  # as whoever has lost an item
        handler.gate.set()
        for name in reasons:
            await story.until(f"end {name}")
        await eventually(lambda: at_rest(bus))
    insisted = {name: [wish.insist for wish in seen] for name, seen in wishes.items()}
    assert {name: seen[:2] for name, seen in insisted.items()} == {
        "stubborn-asked": [False, True],
        "stubborn-unfinished": [False, True],
        "stubborn-drift": [False, False],
        "stubborn-late": [False, False],
    }
    # Of the others, the second wish may have been joined to the first before their turn.
    assert {tuple(seen[2:]) for seen in insisted.values()} <= {(), (False,)}
    assert len(insisted[first]) == 3


@rule("V-9", "V-11")
async def test_a_request_whose_run_could_not_end_is_not_replaced_by_a_comparison(bus: Bus) -> None:
    story, wishes, queue = Story(), list[Wish](), Queue(bus, POOL)

    class Away(Telling):
        async def handle(self, item: Item) -> Outcome:
            wishes.append(item.wish)
            if len(wishes) in (2, 3):  # as whoever has lost the item
                await queue.wish(item.key, Wish(reason=Reason.LATE_REPORT))
            await super().handle(item)
            again = Wish(reason=Reason.RETRY, insist=len(wishes) == 2)
            return Unfinished("waiting", RequeueAfter(again, 60))

    handler = Away(bus, story.add)
    async with running(Pool(bus, POOL, handler, ack_wait=60).run()) as (work,):
        await queue.wish(key("stubborn"), EVENT)
        await story.until("begin stubborn")
        await stopped(work)
    handler.gate.set()
    async with running(Pool(bus, POOL, handler, ack_wait=60).run()):
        await story.until("end stubborn", times=3)
        await eventually(lambda: at_rest(bus))
    # What the second run has put off, the third does: it may put off something else instead.
    assert [wish.insist for wish in wishes] == [False, True, True, False]


@rule("V-9")
async def test_a_bug_lets_its_object_wait_and_no_other(bus: Bus) -> None:
    failed = 0
    story = Story()

    class Buggy(Telling):
        async def handle(self, item: Item) -> Outcome:
            nonlocal failed
            if item.key == key("broken") and item.wish.attempt < 3:
                failed += 1
                raise ZeroDivisionError("a bug")
            return await super().handle(item)

    queue = Queue(bus, POOL)
    async with running(Pool(bus, POOL, Buggy(bus, story.add)).run(), run_due(bus, queue)):
        await queue.wish(key("broken"), EVENT)
        await queue.wish(key("web"), EVENT)
        await story.until("end web")
        await story.until("end broken")
    assert failed == 3
    runs = await records(bus, "broken")
    assert [(run.outcome, run.wish.attempt) for run in runs] == [
        ("failed", 0), ("failed", 1), ("failed", 2), ("succeeded", 3),
    ]  # fmt: skip
    assert runs[0].note == "ZeroDivisionError: a bug"


@rule("V-9", "V-11")
async def test_a_world_that_is_away_for_long_is_nobodys_fault(bus: Bus) -> None:
    story = Story()
    handler = Telling(bus, story.add)
    async with running(Pool(bus, POOL, handler, ack_wait=0.5).run()):
        await Queue(bus, POOL).wish(key("failing"), EVENT)
        await story.until("left failing", times=6)
        handler.gate.set()
        await story.until("end failing")
    assert story.times("aside failing") == 0


@rule("B-2")
async def test_a_run_that_wants_to_be_repeated_is_repeated(bus: Bus) -> None:
    story = Story()

    class Repeating(Telling):
        async def handle(self, item: Item) -> Outcome:
            await super().handle(item)
            again = RequeueAfter(Wish(reason=Reason.RETRY, attempt=1), 0.05)
            return Failed("", None if item.wish.attempt else again)

    queue = Queue(bus, POOL)
    async with running(Pool(bus, POOL, Repeating(bus, story.add)).run(), run_due(bus, queue)):
        await queue.wish(key("web"), EVENT)
        await story.until("end web", times=2)
        await eventually(lambda: at_rest(bus))
    assert [said.reason for said in story.all] == ["event", "event", "retry", "retry"]
    assert await waiting(bus, streams.LATER) == []


async def test_a_pool_goes_on_after_the_server_was_away(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        story, queue = Story(), Queue(bus, POOL)
        handler = Telling(bus, story.add)
        async with running(Pool(bus, POOL, handler, ack_wait=1).run()):
            await queue.wish(key("gated"), EVENT)
            await story.until("begin gated")
            nats.restart()
            handler.gate.set()
            await story.until("end gated")
            await eventually(lambda: wished(queue, "web"))
            await story.until("end web")
            await eventually(lambda: at_rest(bus))
        assert overlaps(story.all) == []


async def test_a_pool_goes_on_when_the_store_is_another_one(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        story, queue = Story(), Queue(bus, POOL)
        async with running(Pool(bus, POOL, Telling(bus, story.add), ack_wait=1).run()):
            await queue.wish(key("before"), EVENT)
            await story.until("end before")
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))
            await eventually(lambda: wished(queue, "after"))
            await story.until("end after")


async def wished(queue: Queue, name: str) -> bool:
    """Wish, as those do whose message is delivered to them again until it succeeds."""
    try:
        await queue.wish(key(name), EVENT)
    except Unreachable:
        return False
    return True
