"""Wishes that come due, kept by the server."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.messages import Reason, Wish
from bus.outcomes import Done, Outcome, RequeueAfter
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from tests.servers.bus.handlers import POOL, Story, Telling, key
from tests.servers.bus.test_pool import at_rest, waiting
from tests.support import shiftedclock
from tests.support.natsserver import NatsServer, ensured
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.settings.bussettings import Access


def retry(attempt: int) -> Wish:
    return Wish(reason=Reason.RETRY, attempt=attempt)


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

    class Repairing:
        async def handle(self, item: Item) -> Outcome:
            runs.put_nowait(item)
            if item.wish.drift:
                await queue.schedule(item.key, failed, 0.5)  # as a run before has left it
            return Done("checked for drift", None if item.wish.insist else drifting)

        async def quarantine(self, item: Item) -> None:
            pass

    await queue.wish(key("web"), Wish(reason=Reason.DRIFT))
    async with running(Pool(bus, POOL, Repairing()).run(), run_due(bus, queue)):
        assert (await soon(runs.get())).wish.reason == Reason.DRIFT
        assert (await soon(runs.get())).wish.insist


async def test_a_run_that_was_asked_for_replaces_what_insists(bus: Bus) -> None:
    queue = Queue(bus, POOL)
    await queue.schedule(key("web"), Wish(reason=Reason.RETRY, insist=True), 600)
    await queue.schedule(key("web"), Wish(reason=Reason.DUE), 900)
    left = await bus.last(streams.LATER, subjects.later(POOL, key("web")))
    assert left
    assert Wish.decoded(left.data) == Wish(reason=Reason.DUE)


@pytest.mark.parametrize(("after", "note"), [(900, "it failed"), (300, "a renewal")], ids=["later", "sooner"])
async def test_a_merged_wish_says_what_comes_first(bus: Bus, after: float, note: str) -> None:
    queue = Queue(bus, POOL)
    await queue.schedule(key("web"), Wish(reason=Reason.RETRY, insist=True, note="it failed"), 600)
    await queue.schedule(key("web"), Wish(reason=Reason.DUE, note="a renewal"), after, asked=False)
    left = await bus.last(streams.LATER, subjects.later(POOL, key("web")))
    assert left
    assert Wish.decoded(left.data) == Wish(reason=Reason.DUE, insist=True, note=note)


@rule("V-9")
async def test_what_is_scheduled_survives_a_restart_of_the_server(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        await Queue(bus, POOL).schedule(key("soon"), retry(1), 0.1)
        await Queue(bus, POOL).schedule(key("later"), retry(1), 2)
    nats.restart()
    async with connected(Access(nats.url)) as bus:
        story, queue = Story(), Queue(bus, POOL)
        async with running(Pool(bus, POOL, Telling(bus, story.add)).run(), run_due(bus, queue)):
            await story.until("end soon")
            await story.until("end later")


async def test_what_came_due_while_nobody_was_there_is_not_lost(bus: Bus) -> None:
    story, queue = Story(), Queue(bus, POOL)
    await queue.schedule(key("web"), retry(3), 0.01)
    await eventually(lambda: is_due(bus))
    async with running(Pool(bus, POOL, Telling(bus, story.add)).run(), run_due(bus, queue)):
        await story.until("end web")
        await eventually(lambda: at_rest(bus))
    assert story.all[0].reason == "retry"
    assert await waiting(bus, streams.LATER) == []


@rule("B-2")
@pytest.mark.parametrize("ahead", [90, -90], ids=["ahead", "behind"])
async def test_a_worker_whose_clock_is_wrong_schedules_at_the_right_time(
    bus: Bus, nats_url: str, tmp_path: Path, ahead: int
) -> None:
    story, queue = Story(), Queue(bus, POOL)
    async with running(Pool(bus, POOL, Telling(bus, story.add)).run(), run_due(bus, queue)):
        asked = time.monotonic()
        told = await scheduled(nats_url, "web", 4.0, shiftedclock.environment(tmp_path, ahead))
        assert abs(told - time.time() - ahead) < 30  # its clock was really wrong
        await story.until("end web")
    assert story.all[0].at - asked >= 4.0


async def scheduled(url: str, name: str, after: float, environment: dict[str, str]) -> float:
    """Have another process schedule a wish. Returns its time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.servers.bus.scheduler", url, name, str(after),
        stdout=PIPE, env={**os.environ, **environment},
    )  # fmt: skip
    answer, _ = await soon(process.communicate())
    assert process.returncode == 0
    return float(answer)


async def is_due(bus: Bus) -> bool:
    return await waiting(bus, streams.LATER) == [subjects.due(POOL, key("web"))]


@rule("V-4")
async def test_a_wish_at_the_end_causes_one_more_run(bus: Bus) -> None:
    story, queue = Story(), Queue(bus, POOL)
    handler = Telling(bus, story.add)
    async with running(Pool(bus, POOL, handler).run()):
        await queue.wish(key("gated"), retry(3))
        await story.until("begin gated")
        await queue.wish(key("gated"), Wish(reason=Reason.LATE_REPORT))
        handler.gate.set()
        await story.until("end gated", times=2)
        await eventually(lambda: at_rest(bus))
        await queue.wish(key("gated"), Wish(reason=Reason.LATE_REPORT))
        await story.until("end gated", times=3)
    assert [said.reason for said in story.all if said.word == "end"] == [
        "retry", "late report", "late report",
    ]  # fmt: skip


async def test_a_wish_keeps_what_the_one_before_asks_for(bus: Bus) -> None:
    queue = Queue(bus, POOL)
    await queue.wish(key("web"), Wish(reason=Reason.RETRY, attempt=3, insist=True))
    await queue.remind(key("web"), Wish(reason=Reason.SWEEP))
    assert await wish_of(bus, "web") == Wish(reason=Reason.RETRY, attempt=3, insist=True)
    await queue.wish(key("web"), Wish(reason=Reason.DRIFT))
    assert await wish_of(bus, "web") == Wish(reason=Reason.DRIFT, attempt=3, insist=True, reported=True)
    await queue.wish(key("web"), Wish(reason=Reason.EVENT))
    assert await wish_of(bus, "web") == Wish(reason=Reason.EVENT, insist=True, verify=True, drift=True)


async def test_wishes_made_at_once_become_one_for_all(bus: Bus) -> None:
    queue, reasons = Queue(bus, POOL), [Reason.EVENT, Reason.DRIFT, Reason.SWEEP, Reason.EDGE] * 10
    await asyncio.gather(*(queue.wish(key("web"), Wish(reason=reason)) for reason in reasons))
    wish = await wish_of(bus, "web")
    assert wish
    assert (wish.changed, wish.verify, wish.drift, wish.overdue) == (True, True, True, True)


async def wish_of(bus: Bus, name: str) -> Wish | None:
    last = await bus.last(streams.TRIGGERS, subjects.wish(POOL, key(name)))
    return Wish.model_validate_json(last.data) if last else None
