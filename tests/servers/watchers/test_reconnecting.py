"""What is listed again when the connection to the bus is back, or a lease was lost."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.apiservers import ApiServers
from bus import streams, subjects
from bus.connection import Access, connected
from tests.servers.watchers.conftest import PATIENCE, watched
from tests.support import servers
from tests.support.natsserver import NatsServer, ensured, made_anew
from tests.support.running import eventually
from windowbox.models.refs import SERVICES

CLUSTERS = 20


async def test_a_restarted_bus_that_lost_nothing_has_nothing_listed(
    nats: NatsServer, apis: ApiServers, tmp_path: Path
) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        async with watched(bus, apis, tmp_path, CLUSTERS) as there:
            before = apis.listings.copy()
            for name in ("first", "second"):
                nats.restart()
                await there.add(name)
                await there.watches()
            assert apis.listings == before


async def test_a_bus_that_lost_everything_is_filled_again(
    nats: NatsServer, apis: ApiServers, tmp_path: Path
) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        async with watched(bus, apis, tmp_path, CLUSTERS) as there:
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))
            for cluster in there.everywhere:
                await there.tells(cluster, "web", "LISTED")


async def test_a_bus_rolled_back_is_noticed_behind_what_others_have_published(
    nats: NatsServer, apis: ApiServers, tmp_path: Path
) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        async with watched(bus, apis, tmp_path, 1) as there:
            store, copy = tmp_path / "nats", tmp_path / "copy"
            nats.stop()
            shutil.copytree(store, copy)
            nats.start()
            apis.put("shoot--0", SERVICES, {"metadata": {"namespace": "default", "name": "late"}})
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


async def test_a_lease_that_is_back_soon_has_nothing_listed(
    nats: NatsServer, apis: ApiServers, tmp_path: Path
) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        async with watched(bus, apis, tmp_path, CLUSTERS) as there:
            before = apis.listings.copy()
            # As if the server had been away: nobody holds a lease, and whoever renews one is refused.
            leases = f"KV_{streams.LEASES}"
            await bus.api(f"STREAM.PURGE.{leases}")
            taken_again = subjects.entry(streams.LEASES, f"watch.runtime.{subjects.of_cluster(SERVICES.id)}")
            await eventually(lambda: bus.last(leases, taken_again), PATIENCE)
            await there.add("meanwhile")
            assert apis.listings == before
