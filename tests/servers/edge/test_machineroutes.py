"""Routes to nodes that run in Pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from bus import streams, subjects
from bus.clusters.registry import MachinePlace, Member, Registry
from bus.messages import OPERATION, UID, VERSION
from bus.transport.connection import Bus, connected
from tests.support.natsserver import NatsServer, made_anew
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.models.loadbalancers import Family
from windowbox.models.objects import Object
from windowbox.models.refs import PODS, RUNTIME, ObjectRef
from windowbox.settings.bussettings import Access
from workers.loadbalancer.edge import machineroutes
from workers.loadbalancer.edge.machineroutes import Hosts, Machines, Node, NodeRoutes
from workers.loadbalancer.edge.trafficnodes import Backend

PLACE = MachinePlace(namespace="infra-a")
HOST: Hosts = {"IPv4": "172.18.0.2", "IPv6": "fd00:10::2"}
OTHER: Hosts = {"IPv4": "172.18.0.3", "IPv6": "fd00:10::3"}


def node(name: str, ipv4: str = "", ipv6: str = "") -> Backend:
    addresses: dict[Family, str] = {"IPv4": ipv4, "IPv6": ipv6}
    return Backend(name, {of: address for of, address in addresses.items() if address})


def pod(*ips: str, phase: str = "Running", single: str = "") -> Object:
    listed = {"hostIPs": [{"ip": ip} for ip in ips]} if ips else {}
    return Object({"status": {"phase": phase, **listed} | ({"hostIP": single} if single else {})})


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param(pod("172.18.0.2", "fd00:10::2"), HOST, id="LB-10-routes-both-families"),
        pytest.param(pod("172.18.0.2"), {"IPv4": "172.18.0.2"}, id="one-family"),
        pytest.param(pod(single="172.18.0.2"), {"IPv4": "172.18.0.2"}, id="only-the-old-field"),
        pytest.param(pod(phase="Pending"), None, id="no-host-yet"),
        pytest.param(pod("172.18.0.2", phase="Failed"), None, id="ended"),
        pytest.param(pod("nonsense"), None, id="no-address"),
        pytest.param(Object({"status": {"hostIPs": "x", "phase": 1}}), None, id="nonsense"),
        pytest.param(
            Object({"status": {"hostIP": "172.18.0.2", "phase": []}}),
            {"IPv4": "172.18.0.2"},
            id="a-list-as-phase",
        ),
    ],
)
def test_where_a_machine_is(pod: Object, found: Hosts | None) -> None:
    assert machineroutes.hosts(pod) == found


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([], {}, id="no-node"),
        pytest.param([node("m1", "10.1.0.5")], {"10.1.0.5/32": "172.18.0.2"}, id="LB-10-routes"),
        pytest.param(
            [node("m1", "10.1.0.5", "fd00:1::5")],
            {"10.1.0.5/32": "172.18.0.2", "fd00:1::5/128": "fd00:10::2"},
            id="LB-10-routes-of-the-same-family",
        ),
        pytest.param(
            [node("m1", "10.1.0.5"), node("m2", "10.1.0.6")],
            {"10.1.0.5/32": "172.18.0.2", "10.1.0.6/32": "172.18.0.3"},
            id="two-hosts",
        ),
    ],
)
def test_each_node_is_reached_through_the_host_of_its_machine(
    nodes: list[Backend], expected: dict[str, str]
) -> None:
    assert _ways({"a": nodes}) == NodeRoutes(expected, {})


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        pytest.param([node("m3", "10.1.0.7")], "no machine Pod infra-a/m3", id="LB-10-unused-no-pod"),
        pytest.param(
            [node("v4", "10.1.0.7", "fd00:1::7")], "none of this family", id="no-host-of-the-family"
        ),
        pytest.param([node("m1", "172.18.0.2")], "no address of a machine Pod", id="calls-itself-its-host"),
        pytest.param([node("m1", "127.0.0.1")], "no address of a machine Pod", id="calls-itself-us"),
    ],
)
def test_a_node_that_cannot_be_reached_is_told(nodes: list[Backend], why: str) -> None:
    missing = _ways({"a": nodes}).missing
    assert list(missing) == [Node("a", nodes[0].name)]
    assert why in missing[Node("a", nodes[0].name)]


def test_a_cluster_cannot_draw_the_traffic_of_another_to_itself() -> None:
    nodes = {"a": [node("m1", "10.1.0.5")], "b": [node("m2", "10.1.0.5"), node("m1", "10.1.0.9")]}
    found = _ways(nodes)
    assert found.routes == {"10.1.0.5/32": "172.18.0.2", "10.1.0.9/32": "172.18.0.2"}
    assert list(found.missing) == [Node("b", "m2")]


def test_nodes_of_clusters_without_machine_pods_need_no_route() -> None:
    assert _ways({RUNTIME: [node("kind-worker", "172.18.0.2")]}) == NodeRoutes({}, {})


def _ways(nodes: Mapping[str, list[Backend]]) -> NodeRoutes:
    found: dict[str, Hosts] = {"m1": HOST, "m2": OTHER, "v4": {"IPv4": "172.18.0.2"}}

    def machine(place: MachinePlace, name: str) -> Hosts | None:
        assert place == PLACE
        return found.get(name)

    return machineroutes.node_routes(nodes, {"a": PLACE, "b": PLACE}, machine)


@dataclass
class Scene:
    """A shoot with one node, whose machine is simulated by messages on the bus."""

    bus: Bus
    machines: Machines
    changed: asyncio.Event

    async def machine(self, name: str, *ips: str) -> None:
        await see(self.bus, name, *ips)

    def routes(self) -> Mapping[str, str]:
        return self.machines.routes({"a": [node("m1", "10.1.0.5")]})

    async def become(self, expected: dict[str, str]) -> None:
        while self.routes() != expected:
            self.changed.clear()
            if self.routes() != expected:
                await soon(self.changed.wait())


async def see(bus: Bus, name: str, *ips: str) -> None:
    subject = subjects.seen(ObjectRef(RUNTIME, PODS.id, PLACE.namespace, name))
    operation = "MODIFIED" if ips else "DELETED"
    body: dict[str, Any] = {"status": {"phase": "Running", "hostIPs": [{"ip": ip} for ip in ips]}}
    headers = {OPERATION: operation, UID: "u", VERSION: "1"}
    await bus.publish(subject, orjson.dumps(body) if ips else b"", headers)


async def list_all(bus: Bus) -> None:
    await bus.publish(subjects.listed(RUNTIME, PODS.id), b"")


@contextlib.asynccontextmanager
async def scene(bus: Bus) -> AsyncIterator[Scene]:
    registry, changed = Registry(bus), asyncio.Event()
    await registry.join(Member(id="a", file="kubeconfig", machines=PLACE))
    machines = Machines(bus, registry, changed.set)
    registry.on_change(changed.set)
    async with running(registry.run(), machines.run()):
        await soon(registry.complete.wait())
        await soon(machines.complete())
        yield Scene(bus, machines, changed)


@rule("LB-10-unused", "LB-11-10")
async def test_a_route_follows_its_machine(bus: Bus) -> None:
    await list_all(bus)
    async with scene(bus) as made:
        await made.become({})
        await made.machine("m1", "172.18.0.2", "fd00:10::2")
        await made.become({"10.1.0.5/32": "172.18.0.2"})
        await made.machine("m1", "172.18.0.3")
        await made.become({"10.1.0.5/32": "172.18.0.3"})
        assert made.machines.routes({}) == {}
        await made.machine("m1")
        await made.become({})


async def test_what_is_missing_is_told_once(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    await list_all(bus)
    async with scene(bus) as made:
        await made.become({})
        for _ in range(3):
            made.routes()
        told = [r.message for r in caplog.records if r.name == "workers.loadbalancer.edge.machineroutes"]
    assert told == ["no route to node m1 of cluster a: it has no machine Pod infra-a/m1 that runs on a host"]


async def test_a_route_stays_while_the_bus_knows_nothing_of_machines(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
        await list_all(bus)
        async with scene(bus) as made:
            await made.machine("m1", "172.18.0.2")
            await made.become({"10.1.0.5/32": "172.18.0.2"})
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))

            async def read_anew() -> bool:
                # A machine of which nothing was known is seen: the view has begun afresh.
                await see(bus, "m2", "172.18.0.9")
                both = [node("m1", "10.1.0.5"), node("m2", "10.1.0.9")]
                return "10.1.0.9/32" in made.machines.routes({"a": both})

            await eventually(read_anew)
            assert await bus.last(streams.OBJECTS, _subject("m1")) is None
            assert made.routes() == {"10.1.0.5/32": "172.18.0.2"}
            await list_all(bus)
            await made.become({})


def _subject(name: str) -> str:
    return subjects.seen(ObjectRef(RUNTIME, PODS.id, PLACE.namespace, name))
