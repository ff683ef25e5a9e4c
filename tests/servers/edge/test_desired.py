"""What the owner of the edges sees of the world, while the bus knows less than it did."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import orjson

from bus import subjects
from bus.connection import Access, Bus, connected
from bus.messages import OPERATION, UID, VERSION
from bus.registry import Registry
from tests.servers.ipam.stores import range_of
from tests.support.lbobjects import node
from tests.support.natsserver import NatsServer, made_anew
from tests.support.running import eventually, running, soon
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.models.refs import ENDPOINT_SLICES, NODES, RUNTIME, SERVICES, ObjectRef, Resource
from workers.edge.admission import Admission
from workers.edge.desired import DesiredState
from workers.edge.routes import Machines
from workers.loadbalancer.ipam.store import AddressStore


async def see(bus: Bus, name: str) -> None:
    headers = {OPERATION: "LISTED", UID: name, VERSION: "1"}
    ref = ObjectRef(RUNTIME, NODES.id, "", name)
    await bus.publish(subjects.seen(ref), orjson.dumps(node(name).raw), headers)


async def list_all(bus: Bus, *others: Resource) -> None:
    for kind in (SERVICES, NODES, *others):
        await bus.publish(subjects.listed(RUNTIME, kind.id), b"")


@contextlib.asynccontextmanager
async def sight(bus: Bus) -> AsyncIterator[DesiredState]:
    registry, store = Registry(bus), AddressStore(bus, [range_of("10.0.0.16/28")])
    settings, machines = LoadBalancerSettings(), Machines(bus, registry, _nothing)
    made = DesiredState(bus, registry, store, settings, _nothing, Admission(settings, machines, _nothing))
    async with running(registry.run(), machines.run(), *(task() for task in made.tasks.values())):
        await soon(made.complete())
        yield made


def _nothing() -> None:
    pass


def names(seen: DesiredState) -> list[str]:
    return [backend.name for backend in seen.backends()[RUNTIME]]


async def test_nodes_that_the_bus_has_forgotten_are_still_there(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
        await see(bus, "one")
        await list_all(bus)
        async with sight(bus) as seen:
            assert names(seen) == ["one"]
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))

            async def forgotten() -> bool:
                return RUNTIME in seen.unlisted()

            await eventually(forgotten)
            assert names(seen) == ["one"]
            await see(bus, "two")
            await list_all(bus)

            async def heard() -> bool:
                return names(seen) == ["two"]

            await eventually(heard)


async def test_pods_that_the_bus_has_forgotten_are_waited_for(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
        await list_all(bus, ENDPOINT_SLICES)
        async with sight(bus) as seen:
            assert seen.unlisted() == set()
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))
            await list_all(bus)

            async def nodes_are_heard() -> bool:
                return names(seen) == ["one"]

            await see(bus, "one")
            await eventually(nodes_are_heard)
            assert seen.unlisted() == {RUNTIME}
            await bus.publish(subjects.listed(RUNTIME, ENDPOINT_SLICES.id), b"")

            async def all_is_heard() -> bool:
                return seen.unlisted() == set()

            await eventually(all_is_heard)


async def test_a_cluster_whose_pods_nobody_watches_is_not_waited_for(bus: Bus) -> None:
    await list_all(bus)
    async with sight(bus) as seen:
        assert seen.unlisted() == set()
