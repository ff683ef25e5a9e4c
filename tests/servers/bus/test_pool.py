"""A pool within this process, on a real server."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.messages import Reason, RunRecord, Wish
from bus.outcomes import Done, Outcome, RequeueAfter, Unfinished
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from tests.servers.bus.handlers import EVENT, POOL, Doing, Story, Telling, at_rest, key, overlaps, waiting
from tests.support.natsserver import NatsServer, emptied
from tests.support.rules import rule
from tests.support.running import eventually, running, soon, stopped
from windowbox.errors import Unreachable
from windowbox.settings.bussettings import Access


def retry(attempt: int) -> Wish:
    return Wish(reason=Reason.RETRY, attempt=attempt)


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
    assert [(one.short, one.reason) for one in story.all] == [
        (f"{word} web", "event 4") for word in ("begin", "end")
    ]


@rule("V-4", "B-7", "LB-6-collapse")
async def test_wishes_during_a_run_make_one_more_run(bus: Bus) -> None:
    story, queue, late = Story(), Queue(bus, POOL), Wish(reason=Reason.LATE_REPORT)
    handler = Telling(bus, story.add)
    async with running(Pool(bus, POOL, handler).run()):
        await queue.wish(key("gated"), retry(3))
        await story.until("begin gated")
        for _ in range(5):
            await queue.wish(key("gated"), late)
        handler.gate.set()
        await story.until("end gated", times=2)
        await eventually(lambda: at_rest(bus))
        assert len(await records(bus, "gated")) == 2
        await queue.wish(key("gated"), late)
        await story.until("end gated", times=3)
    assert [said.short for said in story.all] == ["begin gated", "end gated"] * 3
    assert [said.reason for said in story.all[::2]] == ["retry", "late report", "late report"]


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
    story, queue = Story(), Queue(bus, POOL)
    handler = Telling(bus, story.add)
    async with running(Pool(bus, POOL, handler).run()) as (work,):
        await queue.wish(key("gated"), EVENT)
        await story.until("begin gated")
        work.cancel()
        await queue.wish(key("web"), EVENT)  # is for the next process
        handler.gate.set()
        await asyncio.wait([work])
    assert story.times("end gated") == 1
    async with running(Pool(bus, POOL, handler).run()):
        await story.until("end web")
        await eventually(lambda: at_rest(bus))
    assert story.times("begin gated") == 1


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
    assert [said.word for said in story.all] == ["begin", "left", "begin", "end"]
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
    assert [run.outcome for run in runs] == ["failed"] * 3 + ["succeeded"]
    assert [run.wish.attempt for run in runs] == [0, 1, 2, 3]
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


async def test_a_pool_goes_on_after_the_server_was_away(nats: NatsServer, nats_bus: Bus) -> None:
    story, queue = Story(), Queue(nats_bus, POOL)
    handler = Telling(nats_bus, story.add)
    async with running(Pool(nats_bus, POOL, handler, ack_wait=1).run()):
        await queue.wish(key("gated"), EVENT)
        await story.until("begin gated")
        nats.restart()
        handler.gate.set()
        await story.until("end gated")
        await eventually(lambda: wished(queue, "web"))
        await story.until("end web")
        await eventually(lambda: at_rest(nats_bus))
    assert overlaps(story.all) == []


async def test_a_pool_goes_on_when_the_store_is_another_one(nats: NatsServer, nats_bus: Bus) -> None:
    story, queue = Story(), Queue(nats_bus, POOL)
    async with running(Pool(nats_bus, POOL, Telling(nats_bus, story.add), ack_wait=1).run()):
        await queue.wish(key("before"), EVENT)
        await story.until("end before")
        await emptied(nats, nats_bus)
        await eventually(lambda: wished(queue, "after"))
        await story.until("end after")


async def wished(queue: Queue, name: str) -> bool:
    """Wish, as those do whose message is delivered to them again until it succeeds."""
    try:
        await queue.wish(key(name), EVENT)
    except Unreachable:
        return False
    return True


@rule("B-2")
async def test_what_is_scheduled_comes_due_in_its_order(bus: Bus) -> None:
    story, queue = Story(), Queue(bus, POOL)
    late = subjects.later(POOL, key("third"))
    async with running(Pool(bus, POOL, Telling(bus, story.add)).run(), run_due(bus, queue)):
        await queue.schedule(key("third"), retry(1), 600)
        asked = time.monotonic()
        await queue.schedule(key("second"), retry(1), 0.5)
        await queue.schedule(key("first"), retry(1), 0.005)
        await queue.schedule(key("long-due"), retry(1), -5)
        for name in ("long-due", "first", "second"):
            await story.until(f"end {name}")
        await eventually(lambda: at_rest(bus))
    # However slow this machine is: what is due later waits, and nothing comes before its time.
    assert await waiting(bus, streams.LATER) == [late]
    [second] = [said.at for said in story.all if (said.word, said.name) == ("begin", "second")]
    assert second - asked >= 0.5


async def test_a_newer_schedule_replaces_an_older_one(bus: Bus) -> None:
    story, queue = Story(), Queue(bus, POOL)
    async with running(Pool(bus, POOL, Telling(bus, story.add)).run(), run_due(bus, queue)):
        await queue.schedule(key("web"), Wish(reason="sooner"), 0.2)
        await queue.schedule(key("web"), Wish(reason="later"), 0.6)
        await queue.schedule(key("after"), retry(1), 0.9)
        await story.until("end after")
        await eventually(lambda: at_rest(bus))
    assert [said.reason for said in story.all if said.name == "web"] == ["later", "later"]


async def test_a_run_that_nobody_asked_for_keeps_what_insists(bus: Bus) -> None:
    failed = Wish(reason=Reason.RETRY, attempt=3, insist=True)
    drifting = RequeueAfter(Wish(reason=Reason.DUE, verify=True), 600)
    queue, runs = Queue(bus, POOL), asyncio.Queue[Item]()

    async def repair(item: Item) -> Outcome:
        runs.put_nowait(item)
        if item.wish.drift:
            await queue.schedule(item.key, failed, 0.5)  # as a run before has left it
        return Done("checked for drift", None if item.wish.insist else drifting)

    await queue.wish(key("web"), Wish(reason=Reason.DRIFT))
    async with running(Pool(bus, POOL, Doing(repair)).run(), run_due(bus, queue)):
        assert (await soon(runs.get())).wish.reason == Reason.DRIFT
        assert (await soon(runs.get())).wish.insist


async def test_a_run_that_was_asked_for_replaces_what_insists(bus: Bus) -> None:
    queue = Queue(bus, POOL)
    await queue.schedule(key("web"), Wish(reason=Reason.RETRY, insist=True), 600)
    await queue.schedule(key("web"), Wish(reason=Reason.DUE), 900)
    assert await wish_of(bus, streams.LATER, subjects.later) == Wish(reason=Reason.DUE)


@pytest.mark.parametrize(("after", "note"), [(900, "it failed"), (300, "a renewal")], ids=["later", "sooner"])
async def test_a_merged_wish_says_what_comes_first(bus: Bus, after: float, note: str) -> None:
    queue = Queue(bus, POOL)
    await queue.schedule(key("web"), Wish(reason=Reason.RETRY, insist=True, note="it failed"), 600)
    await queue.schedule(key("web"), Wish(reason=Reason.DUE, note="a renewal"), after, asked=False)
    merged = Wish(reason=Reason.DUE, insist=True, note=note)
    assert await wish_of(bus, streams.LATER, subjects.later) == merged


@rule("V-9")
async def test_scheduled_wishes_survive_a_server_restart(nats: NatsServer, nats_bus: Bus) -> None:
    await Queue(nats_bus, POOL).schedule(key("soon"), retry(1), 0.1)
    await Queue(nats_bus, POOL).schedule(key("later"), retry(1), 2)
    nats.restart()
    async with connected(Access(nats.url)) as bus:
        story, queue = Story(), Queue(bus, POOL)
        async with running(Pool(bus, POOL, Telling(bus, story.add)).run(), run_due(bus, queue)):
            await story.until("end soon")
            await story.until("end later")


async def test_what_came_due_while_nobody_was_there_is_not_lost(bus: Bus) -> None:
    story, queue = Story(), Queue(bus, POOL)
    await queue.schedule(key("web"), retry(3), 0.01)

    async def is_due() -> bool:
        return await waiting(bus, streams.LATER) == [subjects.due(POOL, key("web"))]

    await eventually(is_due)
    async with running(Pool(bus, POOL, Telling(bus, story.add)).run(), run_due(bus, queue)):
        await story.until("end web")
        await eventually(lambda: at_rest(bus))
    assert story.all[0].reason == "retry"
    assert await waiting(bus, streams.LATER) == []


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """A library that shifts the clock of a process."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("there is no C compiler")
    source, library = Path(__file__).with_name("shiftedclock.c"), tmp_path / "shiftedclock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    return library


@rule("B-2")
@pytest.mark.parametrize("ahead", [90, -90], ids=["ahead", "behind"])
async def test_a_wrong_clock_does_not_shift_schedules(
    bus: Bus, nats_url: str, clock: Path, ahead: int
) -> None:
    story, queue = Story(), Queue(bus, POOL)
    async with running(Pool(bus, POOL, Telling(bus, story.add)).run(), run_due(bus, queue)):
        asked = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.servers.bus.programs", "schedule", nats_url, "web", "4",
            stdout=PIPE, env={**os.environ, "LD_PRELOAD": str(clock), "CLOCK_SHIFT": str(ahead)},
        )  # fmt: skip
        its_time, _ = await soon(process.communicate())
        assert abs(float(its_time) - time.time() - ahead) < 30
        await story.until("end web")
    assert story.all[0].at - asked >= 4.0


async def test_a_wish_keeps_what_the_one_before_asks_for(bus: Bus) -> None:
    queue = Queue(bus, POOL)
    await queue.wish(key("web"), Wish(reason=Reason.RETRY, attempt=3, insist=True))
    await queue.remind(key("web"), Wish(reason=Reason.SWEEP))
    assert await wish_of(bus) == Wish(reason=Reason.RETRY, attempt=3, insist=True)
    await queue.wish(key("web"), Wish(reason=Reason.DRIFT))
    assert await wish_of(bus) == Wish(reason=Reason.DRIFT, attempt=3, insist=True, reported=True)
    await queue.wish(key("web"), Wish(reason=Reason.EVENT))
    assert await wish_of(bus) == Wish(reason=Reason.EVENT, insist=True, verify=True, drift=True)


async def test_wishes_made_at_once_become_one_for_all(bus: Bus) -> None:
    queue, reasons = Queue(bus, POOL), [Reason.EVENT, Reason.DRIFT, Reason.SWEEP, Reason.EDGE] * 10
    await asyncio.gather(*(queue.wish(key("web"), Wish(reason=reason)) for reason in reasons))
    wish = await wish_of(bus)
    assert (wish.changed, wish.verify, wish.drift, wish.overdue) == (True, True, True, True)


async def wish_of(
    bus: Bus, stream: str = streams.TRIGGERS, subject: Callable[[str, str], str] = subjects.wish
) -> Wish:
    last = await bus.last(stream, subject(POOL, key("web")))
    assert last
    return Wish.decoded(last.data)
