"""Who holds leases of one family, and lives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from bus import streams
from bus.leases import members
from bus.leases.leases import Leases
from bus.leases.members import Members
from bus.transport.connection import Bus, connected
from tests.support.natsserver import NatsServer
from tests.support.running import eventually, running
from windowbox.settings.bussettings import Access


@contextlib.asynccontextmanager
async def member(bus: Bus, name: str, *, kept: float = 0.0) -> AsyncIterator[None]:
    """A process with the lease of this name, until the end of the block."""
    leases, began = Leases(bus, name, "edge", seconds=2.0), asyncio.Event()

    async def act() -> None:
        began.set()
        await asyncio.Event().wait()

    lease = members.lease("edge", name)
    async with running(leases.run(), leases.while_held(lease, act, kept=lambda: kept)):
        await began.wait()
        yield


@contextlib.asynccontextmanager
async def seen(bus: Bus, monkeypatch: pytest.MonkeyPatch, doubt: float = 0.0) -> AsyncIterator[Members]:
    monkeypatch.setattr(members, "DOUBT", doubt)
    found = Members(bus, "edge")
    async with running(found.run()):
        await found.complete.wait()
        yield found


async def test_members_come_and_leave(one_bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async with seen(one_bus, monkeypatch, doubt=60) as found, member(one_bus, "a"):
        await eventually(lambda: found.alive == {"a"})
        async with member(one_bus, "b.example"), member(one_bus, ""):
            await eventually(lambda: found.alive == {"a", "b.example", ""})
        await eventually(lambda: found.alive == {"a"})


async def test_a_member_is_dead_when_its_life_has_expired(
    one_server: NatsServer, one_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with seen(one_bus, monkeypatch) as found, member(one_bus, "a"):
        async with connected(Access(one_server.url)) as other, member(other, "b"):
            await eventually(lambda: found.alive == {"a", "b"})
            await other.client.close()  # it can neither renew nor release
            await eventually(lambda: found.alive == {"a"})
        assert found.alive == {"a"}


async def test_a_lease_that_is_kept_counts_as_alive_and_its_next_process_takes_it(
    one_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with seen(one_bus, monkeypatch) as found:
        async with member(one_bus, "a", kept=60.0):
            await eventually(lambda: found.alive == {"a"})
        async with member(one_bus, "b"):
            await eventually(lambda: found.alive == {"a", "b"})
        async with member(one_bus, "a", kept=5.0):
            await eventually(lambda: found.alive == {"a"})
        await asyncio.sleep(streams.LEASE_SECONDS + 1)  # the age at which the stream ends most entries
        assert found.alive == {"a"}
        await eventually(lambda: not found.alive)


async def test_nobody_is_declared_dead_because_the_bus_was_away(
    one_server: NatsServer, one_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        seen(one_bus, monkeypatch, doubt=5.0) as found,
        member(one_bus, "a"),
        connected(Access(one_server.url)) as other,
        member(other, "late"),
    ):
        await eventually(lambda: found.alive == {"a", "late"})
        changes: list[frozenset[str]] = []
        found.on_change(lambda: changes.append(found.alive))
        await other.client.close()  # it does not come back, which nobody knows yet
        one_server.stop()
        await asyncio.sleep(streams.LEASE_SECONDS)  # all lives expire
        one_server.start()
        await asyncio.sleep(2)  # all others have got their leases again
        assert changes == []
        await eventually(lambda: found.alive == {"a"})
