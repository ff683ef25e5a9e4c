"""When whoever holds the lease of the addresses asks the clusters which of them are in use."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bus import streams
from bus.clusters.clusters import clusters
from bus.clusters.registry import Member, Registry
from bus.transport.buckets import Bucket
from bus.transport.connection import connected
from bus.workqueue.queue import Queue
from sandbox import files
from tests.servers.ipam.stores import range_of, service
from tests.support import loopback
from tests.support.apiservers import api_servers
from tests.support.natsserver import NatsServer, ensured
from tests.support.running import eventually, running
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import RUNTIME
from windowbox.settings.bussettings import Access
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edgestate import POOL, States
from workers.loadbalancer.ipam.entries import Waiter
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.upkeep import AddressUpkeep


async def test_a_lease_of_the_addresses_that_is_back_has_nothing_listed_while_the_bus_is_connected(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with connected(Access(nats.url)) as bus, api_servers() as apis:
        await ensured(bus)
        paths = {name: tmp_path / f"{name}.kubeconfig" for name in (RUNTIME, "shoot")}
        for name, path in paths.items():
            files.write_private(path, apis.kubeconfig(name))
        registry, store = Registry(bus), AddressStore(bus, [range_of("10.0.0.16/28")])
        states, settings = States(Bucket(bus, streams.EDGES)), LoadBalancerSettings()
        await registry.join(Member(id="shoot", file=str(paths["shoot"])))
        async with (
            kube.from_file(paths[RUNTIME]) as runtime,
            clusters(runtime, registry, loopback.SETTINGS, paths) as opened,
            running(registry.run(), store.run(), states.bucket.run()),
        ):
            upkeep = AddressUpkeep(bus, opened, registry, store, states, settings, Queue(bus, POOL))
            async with running(upkeep.run()):

                async def has_adopted() -> bool:
                    return upkeep.adopted_in == store.bucket.readings

                await eventually(has_adopted)
            before = apis.listings.copy()
            assert before.keys() == paths.keys()
            await store.join_queue(service("waiting"), Waiter(uid="1", since=1.0, families=("IPv4",)))
            async with running(upkeep.run()):

                async def is_at_work() -> bool:
                    return bool(await bus.newest_of(streams.WORK, "work.>"))

                await eventually(is_at_work)
            assert apis.listings == before
            readings = store.bucket.readings
            await asyncio.to_thread(nats.restart)  # what it loses, another process may have written

            async def is_read_again() -> bool:
                return store.bucket.readings > readings

            await eventually(is_read_again)
            async with running(upkeep.run()):

                async def is_listed_again() -> bool:
                    return all(apis.listings[name] > before[name] for name in paths)

                await eventually(is_listed_again)
