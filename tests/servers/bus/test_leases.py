"""One owner at a time, whatever happens to it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable

import pytest

from bus import streams, subjects
from bus.leases import liveness
from bus.leases.leases import HOLDER, Leases
from bus.leases.liveness import Life
from bus.transport import buckets, consumers
from bus.transport.connection import Bus, Stored, connected
from sandbox import processes
from tests.support.natsserver import NatsServer, ensured, made_anew, port_of
from tests.support.proxy import proxy
from tests.support.running import PATIENCE, eventually, running, soon, stopped
from windowbox.settings.bussettings import Access

_STREAM = f"KV_{streams.LEASES}"
_LEASE = f"$KV.{streams.LEASES}.thing"


class EdgeController:
    """Somebody who wants the lease, and notes when it has it."""

    def __init__(self, bus: Bus, name: str, holding: set[str]) -> None:
        self.name = name
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self.leases = Leases(bus, name, "work")
        self._holding = holding

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leases.run())
            tasks.create_task(self.leases.while_held("thing", self._act))

    async def _act(self) -> None:
        assert not self._holding, f"{self.name} began while {self._holding} held the lease"
        self._holding.add(self.name)
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self._holding.discard(self.name)
            self.ended.set()


async def test_a_lease_is_passed_on_at_a_graceful_stop(bus: Bus) -> None:
    holding: set[str] = set()
    first, second = EdgeController(bus, "first", holding), EdgeController(bus, "second", holding)
    async with running(first.run()) as (task,):
        await soon(first.began.wait())
        async with running(second.run()):
            await stopped(task)
            await soon(second.began.wait())
            written = await bus.last(f"KV_{streams.LEASES}", _LEASE)
            assert written is not None
            assert written.data == b"second"


async def test_a_graceful_stop_gives_the_lease_back(bus: Bus) -> None:
    owner = EdgeController(bus, "owner", set())
    async with running(owner.run()) as (task,):
        await soon(owner.began.wait())
        await stopped(task)
    last = await bus.last(f"KV_{streams.LEASES}", _LEASE)
    assert last is not None
    assert last.headers["KV-Operation"] == "DEL"


async def test_those_of_one_process_have_a_lease_together(bus: Bus) -> None:
    leases, began = Leases(bus, "both", "work"), [asyncio.Event(), asyncio.Event()]

    async def act(which: int) -> None:
        began[which].set()
        try:
            await asyncio.Event().wait()
        finally:
            began[which].clear()

    other = EdgeController(bus, "other", set())
    works = [leases.while_held("thing", lambda n=n: act(n)) for n in range(2)]  # type: ignore[misc]
    async with running(leases.run(), *works) as (_, first, second):
        for one in began:
            await soon(one.wait())
        async with running(other.run()):
            await stopped(first)
            assert [one.is_set() for one in began] == [False, True]
            written = await bus.last(f"KV_{streams.LEASES}", _LEASE)
            assert written
            assert written.data == b"both"
            await stopped(second)
            await soon(other.began.wait())


async def test_all_leases_of_a_process_are_renewed_as_one(bus: Bus) -> None:
    """The life of the process is renewed, and each lease written once."""
    leases, held = Leases(bus, "me", "work"), [asyncio.Event() for _ in range(3)]

    async def act(which: int) -> None:
        held[which].set()
        await asyncio.Event().wait()

    works = [leases.while_held(f"thing-{n}", lambda n=n: act(n)) for n in range(3)]  # type: ignore[misc]
    async with running(leases.run(), *works):
        for one in held:
            await soon(one.wait())
        written, renewed = list[Stored](), list[Stored]()
        every = [subjects.entry(streams.LEASES, ">")]
        async for stored in consumers.follow(bus, f"KV_{streams.LEASES}", every):
            if stored is not None:
                (renewed if liveness.is_life(stored.subject) else written).append(stored)
            if len(renewed) == 4:
                break
    assert sorted(e.subject for e in written) == [
        subjects.entry(streams.LEASES, f"thing-{n}") for n in range(3)
    ]
    assert {liveness.subject(e.headers[HOLDER]) for e in written} == {e.subject for e in renewed}


async def test_a_lease_that_another_was_given_is_lost(bus: Bus) -> None:
    holding: set[str] = set()
    owner = EdgeController(bus, "owner", holding)
    async with running(owner.run()):
        await soon(owner.began.wait())
        life = Life("work")
        await bus.publish(liveness.subject(life.name), b"other")
        await bus.publish(_LEASE, b"other", {HOLDER: life.name, "Nats-TTL": "never"})
        await soon(owner.ended.wait())
        owner.began.clear()
        await soon(owner.began.wait())  # the other one does not renew its life


async def test_a_lease_that_nobody_wants_any_more_is_released(bus: Bus) -> None:
    """It could not be when its user ended, because the bus was away."""
    owner = EdgeController(bus, "owner", set())
    async with running(owner.run()):
        await soon(owner.began.wait())
        held = await bus.last(f"KV_{streams.LEASES}", _LEASE)
        assert held
        left = _LEASE + "-left"
        await bus.publish(left, b"owner", {HOLDER: held.headers[HOLDER], "Nats-TTL": "never"})
        async for stored in consumers.follow(bus, f"KV_{streams.LEASES}", [left]):
            if stored is not None and buckets.gone(stored):
                break


async def test_a_single_job_under_a_lease_releases_it(bus: Bus) -> None:
    leases, done = Leases(bus, "me", "work"), []

    async def act() -> None:
        done.append("done")

    async with running(leases.run()):
        await soon(leases.once("thing", act))
    last = await bus.last(f"KV_{streams.LEASES}", _LEASE)
    assert last
    assert (done, last.headers["KV-Operation"]) == (["done"], "DEL")


async def test_an_error_under_a_lease_reaches_the_caller(bus: Bus) -> None:
    leases = Leases(bus, "me", "work")

    async def act() -> None:
        raise ValueError("a bug")

    async with running(leases.run()):
        with pytest.raises(ValueError, match="a bug"):
            await soon(leases.while_held("thing", act))


async def test_many_contenders_hold_a_lease_one_after_another(bus: Bus) -> None:
    holding: set[str] = set()
    owners = [EdgeController(bus, f"owner {number}", holding) for number in range(5)]
    async with running(*(owner.run() for owner in owners)) as tasks:
        left = dict(zip(owners, tasks, strict=True))
        while left:
            await soon(first_of(owner.began for owner in left))
            [holder] = [owner for owner in left if owner.name in holding]
            await stopped(left.pop(holder))
            assert not holding


async def first_of(events: Iterable[asyncio.Event]) -> None:
    """Wait until one of the events has happened."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def test_the_lease_of_a_killed_owner_is_taken_over(bus: Bus, nats_url: str) -> None:
    process = await _owner_process(nats_url)
    heir = EdgeController(bus, "heir", set())
    async with running(heir.run()):
        assert not heir.began.is_set()
        process.kill()
        await process.wait()
        await soon(heir.began.wait())


async def test_a_frozen_owner_notices_its_lost_lease(bus: Bus, nats_url: str) -> None:
    process = await _owner_process(nats_url)
    heir = EdgeController(bus, "heir", set())
    async with running(heir.run()):
        process.send_signal(signal.SIGSTOP)
        await soon(heir.began.wait())
        process.send_signal(signal.SIGCONT)
        assert process.stdout
        said = await soon(process.stdout.readline())
        if said == b"refrains\n":  # it may also be cancelled before it checks
            said = await soon(process.stdout.readline())
        assert said == b"lost\n"
        assert not heir.ended.is_set()
    process.kill()
    await process.wait()


async def test_an_owner_that_is_cut_off_stops_before_another_one_begins(bus: Bus, nats_url: str) -> None:
    port = port_of(nats_url)
    holding: set[str] = set()
    async with proxy(port) as line, connected(Access(f"nats://127.0.0.1:{line.port}")) as far:
        cut_off, heir = EdgeController(far, "cut off", holding), EdgeController(bus, "heir", holding)
        async with running(cut_off.run()):
            await soon(cut_off.began.wait())
            async with running(heir.run()):
                line.hang()
                await soon(heir.began.wait())
                assert cut_off.ended.is_set()
                line.resume()


async def test_an_owner_survives_a_short_server_outage(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        owner = EdgeController(bus, "owner", set())
        async with running(owner.run()):
            await soon(owner.began.wait())
            nats.restart()
            await eventually(lambda: _renewed(bus))


async def test_leases_are_taken_anew_when_the_store_is_another_one(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        owner = EdgeController(bus, "owner", set())
        async with running(owner.run()):
            await soon(owner.began.wait())
            nats.wipe()
            nats.start()
            await soon(owner.ended.wait())
            owner.began.clear()
            await eventually(lambda: made_anew(bus))
            await soon(owner.began.wait())


async def test_a_process_that_was_stopped_for_too_long_does_not_go_on(one_server: NatsServer) -> None:
    """It stops its work before it asks: its key may expire before the answer comes."""
    async with connected(Access(one_server.url)) as bus:
        await ensured(bus)
        owner = EdgeController(bus, "owner", set())
        async with running(owner.run()):
            await soon(owner.began.wait())
            async for stored in consumers.follow(bus, _STREAM, [liveness.subject("work.>")]):
                if stored is not None:
                    break
            # Longer than it may act without renewal, shorter than its key lives: it must not matter that
            # the server would still renew it.
            time.sleep(streams.LEASE_SECONDS * 0.87)  # noqa: ASYNC251 - nothing of this process runs
            await soon(owner.ended.wait())


async def test_an_answer_that_was_lost_costs_no_lease(one_server: NatsServer) -> None:
    """The life was renewed, and its owner does not know."""
    async with connected(Access(one_server.url)) as bus:
        await ensured(bus)
        owner = EdgeController(bus, "owner", set())
        async with running(owner.run()):
            await soon(owner.began.wait())
            held = await bus.last(_STREAM, _LEASE)
            assert held
            life = liveness.subject(held.headers[HOLDER])
            unknown = await bus.publish(life, b"owner")
            assert unknown
            renewed = await _next(bus, life, unknown)
            assert not buckets.gone(renewed)
            assert not owner.ended.is_set()


async def test_a_lease_whose_entry_names_us_is_kept(one_server: NatsServer) -> None:
    """Its owner wrote it again, and the answer was lost."""
    async with connected(Access(one_server.url)) as bus:
        await ensured(bus)
        owner = EdgeController(bus, "owner", set())
        async with running(owner.run()):
            await soon(owner.began.wait())
            held = await bus.last(_STREAM, _LEASE)
            assert held
            ours = {HOLDER: held.headers[HOLDER], "Nats-TTL": "never"}
            unknown = await bus.publish(_LEASE, b"owner", ours)
            assert unknown
            owner.leases.doubt_all()
            assert (await _next(bus, _LEASE, unknown)).headers[HOLDER] == held.headers[HOLDER]
            assert not owner.ended.is_set()


async def _next(bus: Bus, subject: str, after: int) -> Stored:
    """The next message of a subject."""
    async with asyncio.timeout(PATIENCE):
        async for stored in consumers.follow(bus, _STREAM, [subject], since=after + 1):
            if stored is not None:
                return stored
    raise AssertionError("following ends never")


async def _renewed(bus: Bus) -> bool:
    """Whether somebody holds the lease now."""
    try:
        last = await bus.last(f"KV_{streams.LEASES}", _LEASE)
    except Exception:
        return False
    return last is not None and last.data == b"owner"


async def _owner_process(url: str) -> Process:
    """A process that holds the lease, and says when it has lost it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.servers.bus.owner", url,
        stdout=PIPE, preexec_fn=processes.dying_with_parent(), cwd=os.getcwd(),
    )  # fmt: skip
    assert process.stdout
    assert await soon(process.stdout.readline()) == b"holds\n"
    return process
