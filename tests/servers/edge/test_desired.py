"""What the owner of the edges sees of the world, while the bus knows less than it did."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import AsyncIterator, Callable

import orjson

from bus import subjects
from bus.clusters.registry import Registry
from bus.messages import OPERATION, UID, VERSION
from bus.transport.connection import Bus, connected
from tests.servers.ipam.stores import range_of
from tests.support.lbobjects import HTTP, node, pods, service
from tests.support.natsserver import NatsServer, made_anew
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, RUNTIME, SERVICES, ObjectRef, Resource
from windowbox.settings.bussettings import Access
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge.desired import DesiredState
from workers.loadbalancer.edge.machineroutes import Machines
from workers.loadbalancer.edge.nodeadmission import Admission
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.entries import Held, Holder
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
    async with sight_of(bus, registry, store) as made:
        yield made


@contextlib.asynccontextmanager
async def sight_of(bus: Bus, registry: Registry, store: AddressStore) -> AsyncIterator[DesiredState]:
    settings, machines = LoadBalancerSettings(direct=["*"]), Machines(bus, registry, _nothing)
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


@rule("LB-3-unavailable")
async def test_people_are_told_what_is_missing_behind_a_service(bus: Bus) -> None:
    """Not that there are no nodes, where they are only of another family, or where Pods are missing."""
    web, direct = (ObjectRef(RUNTIME, SERVICES.id, "default", name) for name in ("web", "direct"))
    headers = {OPERATION: "LISTED", UID: "uid", VERSION: "1"}
    await list_all(bus)
    async with sight(bus) as seen:
        assert seen.backends() == {RUNTIME: []}
        assert seen.no_backends(web, "IPv4") == "the cluster has no nodes"
        await see(bus, "one")

        async def heard() -> bool:
            return names(seen) == ["one"]

        await eventually(heard)
        assert seen.no_backends(web, "IPv6") == (
            "the only node has no InternalIP of IPv6: choose another family in spec.ipFamilies, "
            "or give nodes such an address"
        )
        unreachable = service(ports=[{**HTTP, "nodePort": None}])
        await bus.publish(subjects.seen(direct), orjson.dumps(unreachable.raw), headers)

        async def asks_for_pods() -> bool:
            return seen.no_backends(direct, "IPv4") == (
                "no Pod of the Service is ready that has an address of IPv4"
            )

        await eventually(asks_for_pods)


class CountingStore(AddressStore):
    """Counts how often it is asked what a Service holds."""

    asked = 0

    def entries(self, ref: ObjectRef) -> tuple[tuple[str, Held], ...]:
        self.asked += 1
        return super().entries(ref)


def computed_anew(seen: DesiredState) -> dict[str, LoadBalancer]:
    """What the load balancers are if all are computed, by the names of their Services."""
    other = copy.copy(seen)
    other._common, other._computed, other._last = None, {}, {}
    return by_name(other)


def by_name(seen: DesiredState) -> dict[str, LoadBalancer]:
    return {ref.name: balancer for ref, balancer in seen.load_balancers().items()}


async def test_whatever_changes_all_load_balancers_are_what_they_ought_to_be(bus: Bus) -> None:
    store = CountingStore(bus, [range_of("10.0.0.16/28")])
    version = itertools.count(1)

    async def tell(kind: Resource, name: str, found: Object | None) -> None:
        operation = "MODIFIED" if found else "DELETED"
        headers = {OPERATION: operation, UID: name, VERSION: str(next(version))}
        ref = ObjectRef(RUNTIME, kind.id, "" if kind == NODES else "default", name)
        await bus.publish(subjects.seen(ref), orjson.dumps(found.raw) if found else b"", headers)

    def made(name: str, port: int = 80) -> Object:
        metadata = {"name": name, "namespace": "default", "uid": name}
        return service(metadata=metadata, ports=[{**HTTP, "port": port}])

    def pods_of(name: str, ready: bool) -> Object:
        labels = {"kubernetes.io/service-name": name}
        found = {**pods("10.1.2.3", ready=ready).raw}
        return Object({**found, "metadata": {"name": "pods", "namespace": "default", "labels": labels}})

    async def give(address: str, *names: str) -> None:
        holders = [
            Holder(cluster=RUNTIME, namespace="default", name=name, uid=name, since=1.0, share="s")
            for name in names
        ]
        _, sequence = await store.read(address)
        await store.write(address, holders, sequence)

    def ports(found: dict[str, LoadBalancer], name: str) -> list[int]:
        return [one.port for one in found[name].listeners] if name in found else []

    names, registry = ("a", "b", "c"), Registry(bus)
    async with running(store.run()):
        await soon(store.ready())
        await addressclaims.adopt_all(store, [])
        await tell(NODES, "one", node("one", "10.0.1.1"))
        for number, name in enumerate(names):
            await tell(SERVICES, name, made(name))
            await give(f"10.0.0.{17 + number}", name)
        await list_all(bus, ENDPOINT_SLICES)
        async with sight_of(bus, registry, store) as seen:
            ending = store.on_holder(seen.touch)

            async def comes(what: Callable[[dict[str, LoadBalancer]], bool]) -> None:
                async def come() -> bool:
                    assert by_name(seen) == computed_anew(seen)
                    return what(by_name(seen))

                await eventually(come)

            await comes(lambda found: found.keys() == set(names))
            kept = seen.load_balancers()
            assert seen.load_balancers() is kept
            before, others = store.asked, by_name(seen)
            await tell(SERVICES, "a", made("a", 81))

            async def only_one() -> bool:
                return ports(by_name(seen), "a") == [81]

            await eventually(only_one)
            assert store.asked - before < len(names)
            assert by_name(seen)["b"] is others["b"]
            await tell(SERVICES, "b", None)
            await comes(lambda found: "b" not in found)
            await tell(SERVICES, "b", made("b"))
            await comes(lambda found: "b" in found)
            await tell(ENDPOINT_SLICES, "pods", pods_of("b", ready=False))
            await comes(lambda found: found["b"].listeners[0].vacant)
            await tell(ENDPOINT_SLICES, "pods", pods_of("c", ready=False))
            await comes(lambda found: found["c"].listeners[0].vacant and not found["b"].listeners[0].vacant)
            await give("10.0.0.18")
            await comes(lambda found: "b" not in found)
            await give("10.0.0.17", "a", "b")
            await comes(lambda found: found.keys() == set(names))
            await tell(NODES, "two", node("two", "10.0.1.2"))
            await comes(lambda found: all(len(one.listeners[0].endpoints) == 2 for one in found.values()))
            await bus.publish(subjects.listed(RUNTIME, SERVICES.id), b"", {OPERATION: "DELETED"})
            await comes(lambda _: RUNTIME in seen.unlisted())
            ending()
