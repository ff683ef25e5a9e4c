"""The desired load balancers, also while the bus has lost objects."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any, ClassVar

import pytest

from bus.clusters.registry import Member, Registry
from bus.transport.connection import Bus
from tests.servers.edge.mirror import forget, list_all, see
from tests.servers.ipam.stores import range_of
from tests.support.lbobjects import DNS, HTTP, node, pods, service
from tests.support.natsserver import NatsServer, emptied
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.loadbalancers import Listener, LoadBalancer
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge import desired, endpoints
from workers.loadbalancer.edge.desired import DesiredState
from workers.loadbalancer.edge.machineroutes import Machines
from workers.loadbalancer.edge.nodeadmission import Admission
from workers.loadbalancer.edge.nodehealth import NodeHealth
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.entries import Held, Holder
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.tracked import Tracked


@contextlib.asynccontextmanager
async def sight(bus: Bus, store: AddressStore | None = None) -> AsyncIterator[DesiredState]:
    def nothing() -> None:
        pass

    store, registry = store or AddressStore(bus, [range_of("10.0.0.16/28")]), Registry(bus)
    settings, machines = LoadBalancerSettings(direct=["*"]), Machines(bus, registry, nothing)
    made = DesiredState(bus, registry, store, settings, nothing, Admission(settings, machines, nothing))
    async with running(registry.run(), machines.run(), *(task() for task in made.tasks.values())):
        await soon(made.complete())
        yield made


def names(seen: DesiredState) -> list[str]:
    return [backend.name for backend in seen.backends()[RUNTIME]]


async def test_nodes_that_the_bus_lost_keep_their_traffic(nats: NatsServer, nats_bus: Bus) -> None:
    await see(nats_bus, NODES, "one", node("one"))
    await list_all(nats_bus, SERVICES, NODES)
    async with sight(nats_bus) as seen:
        assert names(seen) == ["one"]
        await emptied(nats, nats_bus)
        await eventually(lambda: RUNTIME in seen.unlisted())
        assert names(seen) == ["one"]
        await see(nats_bus, NODES, "two", node("two"))
        await list_all(nats_bus, SERVICES, NODES)
        await eventually(lambda: names(seen) == ["two"])


async def test_endpoint_slices_that_the_bus_lost_are_awaited(nats: NatsServer, nats_bus: Bus) -> None:
    await list_all(nats_bus, SERVICES, NODES, ENDPOINT_SLICES)
    async with sight(nats_bus) as seen:
        assert seen.unlisted() == set()
        await emptied(nats, nats_bus)
        await list_all(nats_bus, SERVICES, NODES)
        await see(nats_bus, NODES, "one", node("one"))
        await eventually(lambda: names(seen) == ["one"])
        assert seen.unlisted() == {RUNTIME}
        await list_all(nats_bus, ENDPOINT_SLICES)
        await eventually(lambda: seen.unlisted() == set())


async def test_endpoint_slices_that_are_not_watched_are_not_awaited(bus: Bus) -> None:
    await list_all(bus, SERVICES, NODES)
    async with sight(bus) as seen:
        assert seen.unlisted() == set()


@rule("LB-3-unavailable")
async def test_missing_backends_of_a_service_are_explained(bus: Bus) -> None:
    """Nodes of the other family only, and missing Pods, are other reasons than missing nodes."""
    web, direct = (ObjectRef(RUNTIME, SERVICES.id, "default", name) for name in ("web", "direct"))
    await list_all(bus, SERVICES, NODES)
    async with sight(bus) as seen:
        assert seen.backends() == {RUNTIME: []}
        assert seen.no_backends(web, "IPv4") == "the cluster has no nodes"
        await see(bus, NODES, "one", node("one"))
        await eventually(lambda: names(seen) == ["one"])
        assert seen.no_backends(web, "IPv6") == (
            "the only node has no InternalIP of IPv6: choose another family in spec.ipFamilies, "
            "or give nodes such an address"
        )
        await see(bus, SERVICES, "direct", service(ports=[{**HTTP, "nodePort": None}]), "default")
        why = "no Pod of the Service is ready that has an address of IPv4"
        await eventually(lambda: seen.no_backends(direct, "IPv4") == why)


class CountingStore(AddressStore):
    """Counts the reads of a Service's allocations."""

    asked = 0

    def entries(self, ref: ObjectRef) -> tuple[tuple[str, Held], ...]:
        self.asked += 1
        return super().entries(ref)


async def by_name(seen: DesiredState) -> dict[str, LoadBalancer]:
    return {ref.name: balancer for ref, balancer in (await seen.load_balancers()).items()}


async def recomputed(seen: DesiredState) -> dict[str, LoadBalancer]:
    """All load balancers, computed from scratch, by the names of their Services."""
    other = copy.copy(seen)
    unlisted = seen.unlisted()
    stay = {ref: one for ref, one in (await seen.load_balancers()).items() if ref.cluster in unlisted}
    other._seen, other._known, other._all = {}, {}, Tracked(stay)
    return await by_name(other)


async def test_incremental_load_balancers_equal_recomputed_ones(bus: Bus) -> None:
    store = CountingStore(bus, [range_of("10.0.0.16/28")])

    async def put(name: str, port: int = 80, *, gone: bool = False) -> None:
        metadata = {"name": name, "namespace": "default", "uid": name}
        found = None if gone else service(metadata=metadata, ports=[{**HTTP, "port": port}])
        await see(bus, SERVICES, name, found, "default")

    async def no_pods_of(name: str) -> None:
        labels = {"kubernetes.io/service-name": name}
        metadata = {"name": "pods", "namespace": "default", "labels": labels}
        found = Object({**pods("10.1.2.3", ready=False).raw, "metadata": metadata})
        await see(bus, ENDPOINT_SLICES, "pods", found, "default")

    async def give(address: str, *names: str) -> None:
        holders = [
            Holder(cluster=RUNTIME, namespace="default", name=name, uid=name, since=1.0, share="s")
            for name in names
        ]
        _, sequence = await store.read(address)
        await store.write(address, holders, sequence)

    names = ("a", "b", "c")
    async with running(store.run()):
        await soon(store.ready())
        await addressclaims.adopt_all(store, [])
        await see(bus, NODES, "one", node("one", "10.0.1.1"))
        for number, name in enumerate(names):
            await put(name)
            await give(f"10.0.0.{17 + number}", name)
        await list_all(bus, SERVICES, NODES, ENDPOINT_SLICES)
        async with sight(bus, store) as seen:
            ending = store.on_holder(seen.touch)

            async def comes(what: Callable[[dict[str, LoadBalancer]], bool]) -> None:
                async def holds() -> bool:
                    assert await by_name(seen) == await recomputed(seen)
                    return what(await by_name(seen))

                await eventually(holds)

            await comes(lambda found: found.keys() == set(names))
            changes = (await seen.load_balancers()).changes()
            with changes.taken():
                await seen.load_balancers()
            assert not changes
            before, others = store.asked, await by_name(seen)

            async def is_served_at(port: int) -> bool:
                return [one.port for one in (await by_name(seen))["a"].listeners] == [port]

            await put("a", 81)
            await eventually(lambda: is_served_at(81))
            assert store.asked - before < len(names)
            assert (await by_name(seen))["b"] is others["b"]
            await put("b", gone=True)
            await comes(lambda found: "b" not in found)
            await put("b")
            await comes(lambda found: "b" in found)
            await no_pods_of("b")
            await comes(lambda found: found["b"].listeners[0].vacant)
            await no_pods_of("c")
            await comes(lambda found: found["c"].listeners[0].vacant and not found["b"].listeners[0].vacant)
            await give("10.0.0.18")
            await comes(lambda found: "b" not in found)
            await give("10.0.0.17", "a", "b")
            await comes(lambda found: found.keys() == set(names))
            await see(bus, NODES, "two", node("two", "10.0.1.2"))
            await comes(lambda found: all(len(one.targets["IPv4"]) == 2 for one in found.values()))
            await forget(bus, SERVICES)
            await comes(lambda _: RUNTIME in seen.unlisted())
            ending()


async def test_a_bug_that_one_cluster_triggers_leaves_others_alone(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, bugs = list[str](), [RecursionError("a bug")]

    async def compute(_: DesiredState, __: object, refs: set[ObjectRef], *___: object) -> None:
        (cluster,) = {ref.cluster for ref in refs}
        computed.append(cluster)
        if cluster == "bad" and bugs:
            raise bugs.pop()

    monkeypatch.setattr(DesiredState, "_compute_some", compute)
    await list_all(bus, SERVICES, NODES)
    async with sight(bus) as seen:
        bad, good = (ObjectRef(cluster, SERVICES.id, "default", "web") for cluster in ("bad", "good"))
        seen._touched = {bad, good}
        await seen._compute({"bad", "good"})
        assert sorted(computed) == ["bad", "good"]
        computed.clear()
        monkeypatch.setattr(
            seen._services, "refs", lambda _: [ObjectRef("bad", SERVICES.id, "default", "web")]
        )
        await seen._compute({"bad", "good"})
        assert computed == ["bad"]  # nothing has changed, but it is not computed yet


class Judged(NodeHealth):
    """Knows which addresses fail, without checks."""

    new: ClassVar[set[str]] = set()

    def follow(self, clusters: Mapping[str, Collection[str]]) -> None:
        self.clusters = set(clusters)

    def awaits_check(self, address: str) -> bool:
        return address in self.new


@contextlib.asynccontextmanager
async def two_clusters(bus: Bus) -> AsyncIterator[tuple[DesiredState, CountingStore]]:
    """The runtime cluster and the member `a`, each with a node and three Services."""
    store, registry = CountingStore(bus, [range_of("10.0.0.16/28")]), Registry(bus)
    settings, machines = LoadBalancerSettings(), Machines(bus, registry, lambda: None)
    await registry.join(Member(id="a", file="kubeconfig"))
    async with asyncio.TaskGroup() as group, running(store.run(), registry.run()):
        await soon(store.ready())
        await addressclaims.adopt_all(store, [])
        for number, (cluster, name) in enumerate(itertools.product((RUNTIME, "a"), "xyz")):
            metadata = {"name": name, "namespace": "default", "uid": name}
            await see(bus, SERVICES, name, service(metadata=metadata), "default", cluster)
            holder = Holder(cluster=cluster, namespace="default", name=name, uid=name, since=float(number))
            await store.write(f"10.0.0.{17 + number}", [holder], 0)
        await see(bus, NODES, "one", node("one", "10.0.1.1"))
        await see(bus, NODES, "one", node("one", "10.0.2.1"), cluster="a")
        for cluster in (RUNTIME, "a"):
            await list_all(bus, SERVICES, NODES, cluster=cluster)
        admission = Admission(
            LoadBalancerSettings.model_validate({"node_networks": [{"prefixes": ["10.0.2.0/24"]}]}),
            machines,
            lambda: None,
        )
        health = Judged(group, lambda _: None)
        made = DesiredState(bus, registry, store, settings, lambda: None, admission, health)
        async with running(*(task() for task in made.tasks.values())):
            await soon(made.complete())
            await store.bucket.catch_up()
            yield made, store


async def test_load_balancers_follow_the_cloud_of_their_cluster(bus: Bus) -> None:
    async with two_clusters(bus) as (seen, _):
        before = await by_cluster(seen)
        assert all(one.hairpin is None and one.allowed is None for one in before["a"])
        cloud = CloudFacts(type="aws", networks=("10.0.2.0/24",))
        internal = {"service.beta.kubernetes.io/aws-load-balancer-type": "external"}
        for name in "xyz":
            metadata = {"name": name, "namespace": "default", "uid": name}
            found = service(metadata=metadata, annotations=internal)
            await see(bus, SERVICES, name, found, "default", "a")
        await seen._registry.join(Member(id="a", file="kubeconfig", cloud=cloud))

        async def changed() -> bool:
            now = await by_cluster(seen)
            assert now[RUNTIME] == before[RUNTIME]
            assert len(now["a"]) == 3, "while Services are read again, their load balancers stay"
            return all(one.allowed == ("10.0.2.0/24",) and one.hairpin == ("10.0.2.1",) for one in now["a"])

        await eventually(changed)
        # When nodes come, they may not reach themselves, either.
        await see(bus, NODES, "two", node("two", "10.0.2.2"), cluster="a")
        both = ("10.0.2.1", "10.0.2.2")

        async def aware() -> bool:
            return all(one.hairpin == both for one in (await by_cluster(seen))["a"])

        await eventually(aware)


async def by_cluster(seen: DesiredState) -> dict[str, list[Listener]]:
    found: dict[str, list[Listener]] = {}
    for ref, balancer in (await seen.load_balancers()).items():
        found.setdefault(ref.cluster, []).extend(balancer.listeners)
    return found


async def test_a_change_of_a_node_concerns_its_own_cluster(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_clusters(bus) as (seen, store):
        before = dict(await seen.load_balancers())
        assert len(before) == 6
        made = Counter[str]()
        genuine = endpoints.load_balancer

        def count(ref: ObjectRef, *given: Any) -> LoadBalancer:
            made[ref.cluster] += 1
            return genuine(ref, *given)

        async def is_changed() -> bool:
            await seen.load_balancers()
            return bool(changes)

        monkeypatch.setattr(endpoints, "load_balancer", count)
        asked, after = store.asked, await seen.load_balancers()
        changes = after.changes()
        with changes.taken():
            await see(bus, NODES, "two", node("two", "10.0.2.2"), cluster="a")
        await eventually(is_changed)
        with changes.taken() as changed:
            assert changed == {one for one in after if one.cluster == "a"}
        assert not made, "the listeners stay"
        assert store.asked == asked, "what Services ask for is not looked at"
        mine = [after[ref] for ref in changed]
        assert all(one.listeners is before[one.ref].listeners for one in mine)
        assert {id(one.targets) for one in mine} == {id(mine[0].targets)}, "one list for all Services"
        assert [target.name for target in mine[0].targets["IPv4"]] == ["one", "two"]
        seen.look_at_health_again("10.0.2.1")
        assert not await is_changed(), "no load balancer changes with the health of nodes"
        await list_all(bus, SERVICES, NODES, cluster="a")
        await see(
            bus, SERVICES, "x", service(metadata={"name": "x", "uid": "x"}, ports=[DNS]), "default", "a"
        )

        await eventually(is_changed)
        assert made == {"a": 1}
        assert store.asked - asked <= 2, "a cluster that is listed again is not computed again"


async def test_a_new_node_joins_once_it_was_checked(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without traffic at first, and with it soon after, it would change all endpoints twice."""
    async with two_clusters(bus) as (seen, _):
        monkeypatch.setattr(Judged, "new", {"10.0.2.2"})
        await seen.load_balancers()
        await see(bus, NODES, "two", node("two", "10.0.2.2"), cluster="a")
        await eventually(lambda: len(seen.backends()["a"]) == 2)
        changes = (found := await seen.load_balancers()).changes()

        def nodes() -> set[int]:
            return {len(one.targets["IPv4"]) for ref, one in found.items() if ref.cluster == "a"}

        assert nodes() == {1}
        monkeypatch.setattr(Judged, "new", set())
        with changes.taken():
            seen.look_at_health_again("10.0.2.2")
        await seen.load_balancers()
        assert nodes() == {2}
        assert changes


async def test_ports_times_nodes_of_a_cluster_are_bounded(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desired, "MAX_ENDPOINTS", 3)
    async with two_clusters(bus) as (seen, _):

        async def refused() -> list[str]:
            found = await seen.load_balancers()
            assert all(bool(one.refused) != bool(one.listeners) for one in found.values())
            return [f"{ref.cluster}/{ref.name}" for ref in sorted(found) if found[ref].refused]

        async def are_refused(*wanted: str) -> bool:
            return await refused() == list(wanted)

        assert await refused() == []
        await see(bus, NODES, "two", node("two", "10.0.2.2"), cluster="a")
        # The one that has had its address for longest is served, with two endpoints.
        await eventually(lambda: are_refused("a/y", "a/z"))
        (why,) = next(one for one in (await seen.load_balancers()).values() if one.refused).refused.values()
        assert "endpoints (ports times nodes)" in why
        await see(bus, SERVICES, "x", None, "default", cluster="a")
        await eventually(lambda: are_refused("a/z"))
        await see(bus, NODES, "two", None, cluster="a")
        await eventually(are_refused)
