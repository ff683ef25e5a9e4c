"""Listings after the bus was away, and after a lease was lost."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.leases.leases import HOLDER, Leases
from bus.transport.connection import Bus, connected
from tests.servers.watchers.conftest import PATIENCE, service, watched
from tests.support import servers
from tests.support.apiservers import ApiServers
from tests.support.natsserver import NatsServer, emptied, ensured
from tests.support.running import eventually, running
from watchers import continuity
from windowbox.models.refs import SERVICES
from windowbox.settings.bussettings import Access

CLUSTERS = 6
_KEPT = {"Nats-TTL": "never"}


async def test_a_restarted_bus_that_lost_nothing_has_nothing_listed(
    nats: NatsServer, bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    async with watched(bus, apis, tmp_path, CLUSTERS) as there:
        before = apis.listings.copy()
        for name in ("first", "second"):
            nats.restart()
            await there.add(name)
            await there.watches()
        assert apis.listings == before


async def test_a_bus_that_lost_everything_is_filled_again(
    nats: NatsServer, bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    async with watched(bus, apis, tmp_path, CLUSTERS) as there:
        await emptied(nats, bus)
        for cluster in there.everywhere:
            await there.tells(cluster, "web", "LISTED")
        await there.add("after")


async def test_a_rolled_back_bus_is_noticed_behind_other_messages(
    nats: NatsServer, bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    async with watched(bus, apis, tmp_path, 1) as there:
        store, copy = tmp_path / "nats", tmp_path / "copy"
        nats.stop()
        shutil.copytree(store, copy)
        nats.start()
        apis.put("shoot--0", SERVICES, service("late"))
        await there.tells("shoot--0", "late", "ADDED")
        nats.stop()
        # Before the watcher is back, others bring the stream to where it was.
        with servers.nats_server(copy) as url:
            async with connected(Access(url)) as other:
                for number in range(50):
                    await other.publish(f"object.other.kind.default.{number}", b"")
        shutil.rmtree(store)
        shutil.copytree(copy, store)
        nats.start()
        # ADDED where the stop has cut off the answer to the first announcement.
        await there.tells("shoot--0", "late", "LISTED", "ADDED")


async def test_a_lease_back_soon_has_nothing_listed(
    nats: NatsServer, bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    async with watched(bus, apis, tmp_path, CLUSTERS) as there:
        before = apis.listings.copy()
        # As if the server had been away: nobody holds a lease, and whoever renews one is refused.
        leases = f"KV_{streams.LEASES}"
        await bus.api(f"STREAM.PURGE.{leases}")
        taken_again = subjects.entry(streams.LEASES, f"watch.runtime.{subjects.of_cluster(SERVICES.id)}")
        await eventually(lambda: bus.last(leases, taken_again), PATIENCE)
        await there.add("meanwhile")
        assert apis.listings == before


async def test_an_untaken_lease_is_back_without_a_listing(
    nats: NatsServer, bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuity, "_KEPT", 0.0)
    async with watched(bus, apis, tmp_path, CLUSTERS) as there:
        before = apis.listings.copy()
        # As if its servers had no leader for longer than any patience lasts.
        await bus.api(f"STREAM.DELETE.KV_{streams.LEASES}")
        await eventually(lambda: set(there.watching.states.values()) == {"standing by"}, PATIENCE)
        await ensured(bus)
        await there.add("meanwhile")
        assert apis.listings == before


async def test_a_lease_held_elsewhere_ends_the_watches(
    nats: NatsServer, bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuity, "_KEPT", 0.0)
    leases, prefix = f"KV_{streams.LEASES}", subjects.entry(streams.LEASES, "")
    async with connected(Access(nats.url)) as second:
        other = Leases(second, "two", "watch")
        async with watched(bus, apis, tmp_path, 1):
            watches = {"subjects_filter": f"{prefix}watch.>"}
            entries = (await bus.api(f"STREAM.INFO.{leases}", watches))["state"]["subjects"]
            wanted = ["something.else", *(one.removeprefix(prefix) for one in entries)]
            async with running(other.run(), *(other.while_held(one, _for_ever) for one in wanted)):
                theirs = await eventually(lambda: bus.last(leases, f"{prefix}something.else"))
                assert theirs
                for one in entries:
                    await second.publish(one, theirs.data, {HOLDER: theirs.headers[HOLDER], **_KEPT})

                await eventually(lambda: apis.watches.total() == 0, PATIENCE)


async def test_a_lease_lost_again_by_another_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuity, "_KEPT", 0.01)
    monkeypatch.setattr(continuity, "_TOLD", 0.0)
    term = continuity.Term(lambda: None)
    term.taken()
    # Nobody has been seen with the lease since: nothing happens, and nothing tells of that.
    await asyncio.sleep(0.1)
    assert not term.over.is_set()
    monkeypatch.setattr(continuity, "_TOLD", PATIENCE)
    term.taken()
    async with asyncio.timeout(PATIENCE):
        await term.over.wait()


async def _for_ever() -> None:
    await asyncio.Event().wait()
