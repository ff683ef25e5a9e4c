"""A lease has one owner at a time, even if that is killed, frozen or cut off."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator

from bus import streams, subjects
from bus.leases import liveness
from bus.leases.leases import HOLDER, Leases
from bus.leases.liveness import Life
from bus.transport import buckets, consumers
from bus.transport.connection import Bus, Stored, connected
from tests.servers.bus import programs
from tests.support.forked import Piped
from tests.support.natscluster import on_three
from tests.support.natsserver import NatsServer, made_anew, port_of
from tests.support.proxy import proxy
from tests.support.running import PATIENCE, eventually, running, soon, stopped
from windowbox.settings.bussettings import Access

_STREAM = f"KV_{streams.LEASES}"
_LEASE = f"$KV.{streams.LEASES}.thing"


class EdgeController:
    """A candidate for the lease, which records when it holds it."""

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


@contextlib.asynccontextmanager
async def owning(bus: Bus) -> AsyncIterator[EdgeController]:
    """An owner that has begun."""
    owner = EdgeController(bus, "owner", set())
    async with running(owner.run()):
        await soon(owner.began.wait())
        yield owner


async def entry(bus: Bus) -> Stored:
    """The last entry of the lease."""
    found = await bus.last(_STREAM, _LEASE)
    assert found
    return found


@on_three()
async def test_a_graceful_stop_passes_the_lease_on(bus: Bus) -> None:
    holding: set[str] = set()
    first, second = EdgeController(bus, "first", holding), EdgeController(bus, "second", holding)
    async with running(first.run()) as (task,):
        await soon(first.began.wait())
        async with running(second.run()):
            await stopped(task)
            await soon(second.began.wait())
            assert (await entry(bus)).data == b"second"
    assert (await entry(bus)).headers["KV-Operation"] == "DEL"


async def test_users_in_one_process_share_a_lease(bus: Bus) -> None:
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
            assert (await entry(bus)).data == b"both"
            await stopped(second)
            await soon(other.began.wait())


async def test_a_process_renews_one_key_for_all_leases(bus: Bus) -> None:
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
        async for stored in consumers.follow(bus, _STREAM, [subjects.entry(streams.LEASES, ">")]):
            if stored is not None:
                (renewed if liveness.is_life(stored.subject) else written).append(stored)
            if len(renewed) == 4:
                break
    assert sorted(e.subject for e in written) == [
        subjects.entry(streams.LEASES, f"thing-{n}") for n in range(3)
    ]
    assert {liveness.subject(e.headers[HOLDER]) for e in written} == {e.subject for e in renewed}


async def test_a_lease_rewritten_by_another_holder_is_lost(bus: Bus) -> None:
    async with owning(bus) as owner:
        life = Life("work")
        await bus.publish(liveness.subject(life.name), b"other")
        await bus.publish(_LEASE, b"other", {HOLDER: life.name, "Nats-TTL": "never"})
        await soon(owner.ended.wait())
        owner.began.clear()
        await soon(owner.began.wait())  # the other one does not renew its life


async def test_an_unused_lease_is_released(bus: Bus) -> None:
    """It could not be when its user ended, because the bus was away."""
    async with owning(bus):
        holder, left = (await entry(bus)).headers[HOLDER], _LEASE + "-left"
        await bus.publish(left, b"owner", {HOLDER: holder, "Nats-TTL": "never"})
        async for stored in consumers.follow(bus, _STREAM, [left]):
            if stored is not None and buckets.gone(stored):
                break


async def test_a_single_job_under_a_lease_releases_it(bus: Bus) -> None:
    leases, done = Leases(bus, "me", "work"), []

    async def act() -> None:
        done.append("done")

    async with running(leases.run()):
        await soon(leases.once("thing", act))
    assert (done, (await entry(bus)).headers["KV-Operation"]) == (["done"], "DEL")


async def test_an_error_under_a_lease_does_not_release_it(bus: Bus) -> None:
    leases, entries = Leases(bus, "me", "work"), list[Stored]()

    async def act() -> None:
        entries.append(await entry(bus))
        if len(entries) == 1:
            raise ValueError("a bug")

    async with running(leases.run()):
        await soon(leases.once("thing", act))
    assert len({found.headers[HOLDER] for found in entries}) == 1
    assert not any(map(buckets.gone, entries))


@on_three()
async def test_many_contenders_hold_a_lease_one_after_another(bus: Bus) -> None:
    holding: set[str] = set()
    owners = [EdgeController(bus, f"owner {number}", holding) for number in range(5)]
    async with running(*(owner.run() for owner in owners)) as tasks:
        left = dict(zip(owners, tasks, strict=True))
        while left:
            await eventually(lambda: any(owner.began.is_set() for owner in left))
            [holder] = [owner for owner in left if owner.name in holding]
            await stopped(left.pop(holder))
            assert not holding


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
        said = await soon(process.lines.readline())
        if said == b"refrains\n":  # it may also be cancelled before it checks
            said = await soon(process.lines.readline())
        assert said == b"lost\n"
        assert not heir.ended.is_set()
    process.kill()
    await process.wait()


async def test_an_owner_that_is_cut_off_stops_before_another_one_begins(bus: Bus, nats_url: str) -> None:
    holding: set[str] = set()
    async with proxy(port_of(nats_url)) as line, connected(Access(f"nats://127.0.0.1:{line.port}")) as far:
        cut_off, heir = EdgeController(far, "cut off", holding), EdgeController(bus, "heir", holding)
        async with running(cut_off.run()):
            await soon(cut_off.began.wait())
            async with running(heir.run()):
                line.hang()
                await soon(heir.began.wait())
                assert cut_off.ended.is_set()
                line.resume()


async def test_an_owner_survives_a_short_server_outage(nats: NatsServer, nats_bus: Bus) -> None:
    async def renewed() -> bool:
        with contextlib.suppress(Exception):
            return (await entry(nats_bus)).data == b"owner"
        return False

    async with owning(nats_bus):
        nats.restart()
        await eventually(renewed)


async def test_leases_are_acquired_again_in_another_store(nats: NatsServer, nats_bus: Bus) -> None:
    async with owning(nats_bus) as owner:
        nats.wipe()
        nats.start()
        await soon(owner.ended.wait())
        owner.began.clear()
        await eventually(lambda: made_anew(nats_bus))
        await soon(owner.began.wait())


async def test_a_process_stopped_for_too_long_cancels_its_work(one_bus: Bus) -> None:
    """It stops its work before it asks: its key may expire before the answer comes."""
    async with owning(one_bus) as owner:
        async for stored in consumers.follow(one_bus, _STREAM, [liveness.subject("work.>")]):
            if stored is not None:
                break
        # Longer than it may act without renewal, shorter than its key lives: it must not matter that
        # the server would still renew it.
        time.sleep(streams.LEASE_SECONDS * 0.87)  # noqa: ASYNC251 - nothing of this process runs
        await soon(owner.ended.wait())


async def test_an_answer_that_was_lost_costs_no_lease(one_bus: Bus) -> None:
    """The life was renewed, and its owner does not know."""
    async with owning(one_bus) as owner:
        life = liveness.subject((await entry(one_bus)).headers[HOLDER])
        unknown = await one_bus.publish(life, b"owner")
        assert unknown
        renewed = await _next(one_bus, life, unknown)
        assert not buckets.gone(renewed)
        assert not owner.ended.is_set()


async def test_a_lease_that_still_names_its_owner_is_kept(one_bus: Bus) -> None:
    """Its owner wrote it again, and the answer was lost."""
    async with owning(one_bus) as owner:
        holder = (await entry(one_bus)).headers[HOLDER]
        unknown = await one_bus.publish(_LEASE, b"owner", {HOLDER: holder, "Nats-TTL": "never"})
        assert unknown
        owner.leases.doubt_all()
        assert (await _next(one_bus, _LEASE, unknown)).headers[HOLDER] == holder
        assert not owner.ended.is_set()


async def _next(bus: Bus, subject: str, after: int) -> Stored:
    """The next message of a subject."""
    async with asyncio.timeout(PATIENCE):
        async for stored in consumers.follow(bus, _STREAM, [subject], since=after + 1):
            if stored is not None:
                return stored
    raise AssertionError("following ends never")


async def _owner_process(url: str) -> Piped:
    """A process that holds the lease, and says when it has lost it."""
    process = Piped(programs.run, "own", url)
    await process.start()
    assert await soon(process.lines.readline()) == b"holds\n"
    return process
