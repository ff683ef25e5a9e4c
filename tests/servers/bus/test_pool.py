"""A pool within this process, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
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
from bus.workqueue import pool as pools
from bus.workqueue.pool import FRESH, Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from tests.servers.bus.handlers import (
    EVENT,
    POOL,
    Doing,
    Telling,
    comes_to_rest,
    key,
    overlaps,
    waiting,
    wish,
    working,
)
from tests.support.natscluster import on_three
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
        await wish(bus, "web", Wish(reason=f"event {number}"))
    assert await waiting(bus, streams.WORK) == [f"work.test.{key('web')}"]
    await asyncio.sleep(FRESH)  # an item that is taken at once is run with its first wish
    async with working(bus) as pool:
        await pool.end("web")
        await comes_to_rest(bus)
    assert [(said.short, said.reason) for said in pool.story.all] == [
        ("begin web", "event 4"),
        ("end web", "event 4"),
    ]


@rule("V-4", "B-7", "LB-6-collapse")
async def test_wishes_during_a_run_make_one_more_run(bus: Bus) -> None:
    late = Wish(reason=Reason.LATE_REPORT)
    async with working(bus) as pool:
        await pool.begin("gated", retry(3))
        for _ in range(5):
            await pool.wish("gated", late)
        await pool.end("gated", times=2)
        await comes_to_rest(bus)
        assert len(await records(bus, "gated")) == 2
        await pool.wish("gated", late)
        await pool.end("gated", times=3)
    assert pool.story.shorts == ["begin gated", "end gated"] * 3
    assert [said.reason for said in pool.story.all[::2]] == ["retry", "late report", "late report"]


@rule("B-7", "LB-2-serial")
async def test_many_objects_are_worked_on_at_once(bus: Bus) -> None:
    async with working(bus, concurrency=10) as pool:
        story = pool.story
        for number in range(12):
            await pool.wish(f"gated-{number}")
        await story.until_so(lambda: len(story.all) == 10, "ten begin")
        pool.handler.gate.set()
        await story.until_so(lambda: len(story.all) == 24, "all have ended")
    assert [said.word for said in story.all[:10]] == ["begin"] * 10


@rule("V-10")
async def test_an_item_stays_ours_as_long_as_its_run_lasts(bus: Bus) -> None:
    async with working(bus, ack_wait=1) as long:
        await long.begin("gated")
        async with working(bus, story=long.story, who=2, ack_wait=1) as short:
            await short.queue.schedule(key("much-later"), EVENT, 2.0)
            await short.story.until("end much-later")
            await long.end("gated")
    assert long.story.times("begin gated") == 1


async def test_a_graceful_stop_lets_runs_finish(bus: Bus) -> None:
    async with working(bus) as first:
        await first.begin("gated")
        first.task.cancel()
        await first.wish("web")  # is for the next process
        first.handler.gate.set()
        await asyncio.wait([first.task])
    assert first.story.shorts == ["begin gated", "end gated"]
    async with working(bus) as second:
        await second.end("web")
        await comes_to_rest(bus)
    assert second.story.shorts == ["begin web", "end web"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that ends waits but a moment for its runs."""
    monkeypatch.setattr(pools, "_GRACE", 0.5)


@pytest.mark.usefixtures("impatient")
async def test_a_graceful_stop_requeues_runs_that_take_too_long(bus: Bus) -> None:
    async with working(bus, ack_wait=60) as first:
        await first.begin("stubborn")
        async with working(bus, story=first.story, who=2, ack_wait=60) as second:
            second.handler.gate.set()
            await stopped(first.task)
            await second.end("stubborn")
    assert [said.word for said in first.story.all] == ["begin", "left", "begin", "end"]
    assert overlaps(first.story.all) == []


@pytest.mark.usefixtures("impatient")
async def test_only_a_request_that_was_cut_off_is_run_in_any_case(bus: Bus) -> None:
    reasons = {
        "stubborn-asked": Reason.EVENT,
        "stubborn-unfinished": Reason.SWEEP,
        "stubborn-drift": Reason.DRIFT,
        "stubborn-late": Reason.LATE_REPORT,
    }
    async with working(bus, ack_wait=60) as before:
        for name, reason in reasons.items():
            await before.begin(name, Wish(reason=reason))
        await stopped(before.task)
    async with working(bus, ack_wait=60) as after:
        await after.story.until_so(lambda: bool(after.story.all), "one begins again")
        first = after.story.all[0].name
        for name in reasons:
            await after.wish(name, Wish(reason=Reason.LATE_REPORT))  # as a worker that has lost an item
        for name in reasons:
            await after.end(name)
        await comes_to_rest(bus)
    assert not any(said.insist for said in before.story.all)
    begun = [said for said in after.story.all if said.word == "begin"]
    insisted = {name: [said.insist for said in begun if said.name == name] for name in reasons}
    assert {name: seen[0] for name, seen in insisted.items()} == {
        "stubborn-asked": True,
        "stubborn-unfinished": True,
        "stubborn-drift": False,
        "stubborn-late": False,
    }
    # Of the others, the second wish may have been joined to the first before their turn.
    assert {tuple(seen[1:]) for seen in insisted.values()} <= {(), (False,)}
    assert len(insisted[first]) == 2


@pytest.mark.usefixtures("impatient")
@rule("V-9", "V-11")
async def test_a_request_whose_run_could_not_end_is_not_replaced_by_a_comparison(bus: Bus) -> None:
    wishes: list[Wish] = []

    class Away(Telling):
        async def handle(self, item: Item) -> Outcome:
            wishes.append(item.wish)
            if len(wishes) in (2, 3):  # as a worker that has lost the item
                await wish(bus, "stubborn", Wish(reason=Reason.LATE_REPORT))
            await super().handle(item)
            again = Wish(reason=Reason.RETRY, insist=len(wishes) == 2)
            return Unfinished("waiting", RequeueAfter(again, 60))

    async with working(bus, Away, ack_wait=60) as before:
        await before.begin("stubborn")
        await stopped(before.task)
    async with working(bus, Away, ack_wait=60) as after:
        await after.end("stubborn", times=3)
        await comes_to_rest(bus)
    # What the second run has put off, the third does: it may put off something else instead.
    assert [one.insist for one in wishes] == [False, True, True, False]


@on_three()
@rule("V-9")
async def test_a_bug_delays_only_its_own_object(bus: Bus) -> None:
    async with working(bus) as pool:
        await pool.wish("broken")
        await pool.wish("web")
        await pool.end("web")
        await pool.end("broken")
    assert pool.story.times("left broken") == 3
    runs = await records(bus, "broken")
    assert [run.outcome for run in runs] == ["failed"] * 3 + ["succeeded"]
    assert [run.wish.attempt for run in runs] == [0, 1, 2, 3]
    assert runs[0].note == "ZeroDivisionError: a bug"


@rule("V-9", "V-11")
async def test_an_item_that_fails_for_long_is_not_quarantined(bus: Bus) -> None:
    async with working(bus, ack_wait=0.5) as pool:
        await pool.wish("failing")
        await pool.story.until("left failing", times=6)
        await pool.end("failing")
    assert pool.story.times("aside failing") == 0


async def test_a_pool_continues_after_a_server_restart(nats: NatsServer, nats_bus: Bus) -> None:
    async with working(nats_bus, ack_wait=1) as pool:
        await pool.begin("gated")
        nats.restart()
        await pool.end("gated")
        await eventually(lambda: wished(nats_bus, "web"))
        await pool.end("web")
        await comes_to_rest(nats_bus)
    assert overlaps(pool.story.all) == []


@on_three("nats")
async def test_a_pool_continues_with_another_store(nats: NatsServer, nats_bus: Bus) -> None:
    async with working(nats_bus, ack_wait=1) as pool:
        await pool.begin("before")
        await pool.end("before")
        await emptied(nats, nats_bus)
        await eventually(lambda: wished(nats_bus, "after"))
        await pool.end("after")


async def wished(bus: Bus, name: str) -> bool:
    """Wish, as routers do, whose message is delivered again until it succeeds."""
    with contextlib.suppress(Unreachable):
        await wish(bus, name)
        return True
    return False


@rule("B-2")
async def test_scheduled_wishes_come_due_in_order(bus: Bus) -> None:
    async with working(bus) as pool:
        await pool.queue.schedule(key("third"), retry(1), 600)
        asked = time.monotonic()
        for name, after in (("second", 0.5), ("first", 0.005), ("long-due", -5)):
            await pool.queue.schedule(key(name), retry(1), after)
        for name in ("long-due", "first", "second"):
            await pool.end(name)
        await comes_to_rest(bus)
    # However slow this machine is: what is due later waits, and nothing comes before its time.
    assert await waiting(bus, streams.LATER) == [subjects.later(POOL, key("third"))]
    [second] = [said.at for said in pool.story.all if said.short == "begin second"]
    assert second - asked >= 0.5


async def test_a_newer_schedule_replaces_an_older_one(bus: Bus) -> None:
    async with working(bus) as pool:
        await pool.queue.schedule(key("web"), Wish(reason="sooner"), 0.2)
        await pool.queue.schedule(key("web"), Wish(reason="later"), 0.6)
        await pool.queue.schedule(key("after"), retry(1), 0.9)
        await pool.end("after")
        await comes_to_rest(bus)
    assert [said.reason for said in pool.story.all if said.name == "web"] == ["later", "later"]


async def test_a_drift_check_keeps_an_insisting_wish(bus: Bus) -> None:
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


async def test_a_version_counts_as_written_by_a_run_while_that_run_is_in_flight(bus: Bus) -> None:
    made, runs, ending = subjects.ref(key("made")), asyncio.Queue[Item](), asyncio.Event()

    async def write(item: Item) -> Outcome:
        if not ending.is_set():
            item.writes.add((made, "5"))
        runs.put_nowait(item)
        await ending.wait()
        return Done()

    pool = Pool(bus, POOL, Doing(write))
    await wish(bus, "web")
    async with running(pool.run()):
        await soon(runs.get())
        assert pool.wrote(key("web"), made, "5")
        assert not pool.wrote(key("web"), made, "6")
        assert not pool.wrote(key("other"), made, "5")
        # The next run may have read a version before it.
        await wish(bus, "web", Wish(reason=Reason.DRIFT))
        ending.set()
        await soon(runs.get())
        assert not pool.wrote(key("web"), made, "5")
        await comes_to_rest(bus)
    assert not pool._running


async def test_a_requested_run_replaces_an_insisting_wish(bus: Bus) -> None:
    queue = Queue(bus, POOL)
    await queue.schedule(key("web"), Wish(reason=Reason.RETRY, insist=True), 600)
    await queue.schedule(key("web"), Wish(reason=Reason.DUE), 900)
    assert await wish_of(bus, streams.LATER, subjects.later) == Wish(reason=Reason.DUE)


@pytest.mark.parametrize(("after", "note"), [(900, "it failed"), (300, "a renewal")], ids=["later", "sooner"])
async def test_a_merged_wish_has_the_note_of_the_earlier_one(bus: Bus, after: float, note: str) -> None:
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
    async with connected(Access(nats.url)) as bus, working(bus) as pool:
        await pool.end("soon")
        await pool.end("later")


@on_three()
async def test_a_wish_due_without_a_worker_is_not_lost(bus: Bus) -> None:
    await Queue(bus, POOL).schedule(key("web"), retry(3), 0.01)

    async def is_due() -> bool:
        return await waiting(bus, streams.LATER) == [subjects.due(POOL, key("web"))]

    await eventually(is_due)
    async with working(bus) as pool:
        await pool.end("web")
        await comes_to_rest(bus)
    assert pool.story.all[0].reason == "retry"
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
@pytest.mark.parametrize(
    "ahead", [pytest.param(90, id="ahead"), pytest.param(-90, id="behind", marks=pytest.mark.long)]
)
async def test_a_wrong_clock_does_not_shift_schedules(
    bus: Bus, nats_url: str, clock: Path, ahead: int
) -> None:
    async with working(bus) as pool:
        asked = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.servers.bus.programs", "schedule", nats_url, "web", "4",
            stdout=PIPE, env={**os.environ, "LD_PRELOAD": str(clock), "CLOCK_SHIFT": str(ahead)},
        )  # fmt: skip
        its_time, _ = await soon(process.communicate())
        assert abs(float(its_time) - time.time() - ahead) < 30
        await pool.end("web")
    assert pool.story.all[0].at - asked >= 4.0


async def test_a_wish_keeps_the_demands_of_the_wish_before(bus: Bus) -> None:
    queue = Queue(bus, POOL)
    await queue.wish(key("web"), Wish(reason=Reason.RETRY, attempt=3, insist=True))
    await queue.remind(key("web"), Wish(reason=Reason.SWEEP))
    assert await wish_of(bus) == Wish(reason=Reason.RETRY, attempt=3, insist=True)
    await queue.wish(key("web"), Wish(reason=Reason.DRIFT))
    assert await wish_of(bus) == Wish(reason=Reason.DRIFT, attempt=3, insist=True, reported=True)
    await queue.wish(key("web"), Wish(reason=Reason.EVENT))
    assert await wish_of(bus) == Wish(reason=Reason.EVENT, insist=True, verify=True, drift=True)


async def test_wishes_made_at_once_become_one_for_all(bus: Bus) -> None:
    reasons = [Reason.EVENT, Reason.DRIFT, Reason.SWEEP, Reason.EDGE] * 10
    await asyncio.gather(*(wish(bus, "web", Wish(reason=reason)) for reason in reasons))
    last = await wish_of(bus)
    assert (last.changed, last.verify, last.drift, last.overdue) == (True, True, True, True)


async def wish_of(
    bus: Bus, stream: str = streams.TRIGGERS, subject: Callable[[str, str], str] = subjects.wish
) -> Wish:
    last = await bus.last(stream, subject(POOL, key("web")))
    assert last
    return Wish.decoded(last.data)
