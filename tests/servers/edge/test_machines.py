"""Nodes that run in Pods: the routes to them, and the admission of their addresses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from bus import streams, subjects
from bus.clusters.registry import MachinePlace, Member, Registry
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus
from tests.servers.edge.mirror import forget, list_all, see
from tests.servers.ipam.stores import range_of
from tests.support.cases import cases
from tests.support.lbobjects import HTTP, pods, service
from tests.support.natsserver import NatsServer, emptied
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, PODS, RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge import machineroutes, nodeadmission, trafficnodes
from workers.loadbalancer.edge.desired import DesiredState
from workers.loadbalancer.edge.machineroutes import Hosts, Machines, Node, NodeRoutes
from workers.loadbalancer.edge.nodeadmission import Admission
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.entries import Holder
from workers.loadbalancer.ipam.store import AddressStore

PLACE = MachinePlace(namespace="infra-a")
HOST: Hosts = {"IPv4": "172.18.0.2", "IPv6": "fd00:10::2"}
OTHER: Hosts = {"IPv4": "172.18.0.3", "IPv6": "fd00:10::3"}
GATEWAY = "172.18.0.1"
VICTIM = "10.1.0.5"
LONG_AGO = "2020-01-01T00:00:00Z"
WIDE: dict[str, Any] = {"node_networks": [{"prefixes": ["10.2.0.0/16"]}]}


def node(name: str, *addresses: str, created: str = "2026-01-01T00:00:00Z", uid: str = "") -> Backend:
    listed = [{"type": "InternalIP", "address": one} for one in addresses]
    metadata = {"name": name, "creationTimestamp": created, "uid": uid}
    found = trafficnodes.backend(Object({"metadata": metadata, "status": {"addresses": listed}}))
    assert isinstance(found, Backend)
    return found


M1 = node("m1", VICTIM)


def pod(*hosts: str, own: tuple[str, ...] = (), **status: Any) -> Object:
    """A machine Pod that runs."""
    listed = {"hostIPs": [{"ip": ip} for ip in hosts], "podIPs": [{"ip": ip} for ip in own]}
    return Object(
        {"metadata": {"labels": {"app": "machine"}}, "status": {"phase": "Running", **listed, **status}}
    )


@cases(
    "pod found",
    ("LB-10-routes-both-families", pod("172.18.0.2", "fd00:10::2"), HOST),
    ("one-family", pod("172.18.0.2"), {"IPv4": "172.18.0.2"}),
    ("only-the-old-field", pod(hostIP="172.18.0.2"), {"IPv4": "172.18.0.2"}),
    ("no-host-yet", pod(phase="Pending"), None),
    ("ended", pod("172.18.0.2", phase="Failed"), None),
    ("no-address", pod("nonsense"), None),
    ("nonsense", pod(hostIPs="x", phase=1), None),
    ("a-list-as-phase", pod(hostIP="172.18.0.2", phase=[]), {"IPv4": "172.18.0.2"}),
)
def test_the_host_of_a_machine_pod(pod: Object, found: Hosts | None) -> None:
    machine = machineroutes.machine(pod)
    assert (machine.hosts if machine else None) == found


@cases(
    "nodes expected",
    ("no-node", [], {}),
    ("LB-10-routes", [M1], {"10.1.0.5/32": "172.18.0.2"}),
    (
        "LB-10-routes-of-the-same-family",
        [node("m1", "10.1.0.5", "fd00:1::5")],
        {"10.1.0.5/32": "172.18.0.2", "fd00:1::5/128": "fd00:10::2"},
    ),
    ("two-hosts", [M1, node("m2", "10.1.0.6")], {"10.1.0.5/32": "172.18.0.2", "10.1.0.6/32": "172.18.0.3"}),
)
def test_each_node_is_reached_through_the_host_of_its_machine(
    nodes: list[Backend], expected: dict[str, str]
) -> None:
    assert _ways({"a": nodes}) == NodeRoutes(expected, {})


@cases(
    "found why",
    ("LB-10-unused-no-pod", node("m3", "10.1.0.7"), "no machine Pod infra-a/m3"),
    ("no-host-of-the-family", node("v4", "10.1.0.7", "fd00:1::7"), "none of this family"),
    ("calls-itself-its-host", node("m1", "172.18.0.2"), "no address of a machine Pod"),
    ("calls-itself-us", node("m1", "127.0.0.1"), "no address of a machine Pod"),
)
def test_an_unreachable_node_is_reported(found: Backend, why: str) -> None:
    missing = _ways({"a": [found]}).missing
    assert list(missing) == [Node("a", found.name)]
    assert why in missing[Node("a", found.name)]


def test_a_cluster_cannot_attract_the_traffic_of_another() -> None:
    found = _ways({"a": [M1], "b": [node("m2", VICTIM), node("m1", "10.1.0.9")]})
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
    """Shoots a and b, whose nodes are Pods of the runtime cluster, simulated by messages on the bus; c, whose
    nodes are none."""

    bus: Bus
    machines: Machines
    changed: asyncio.Event

    def admission(self, **settings: Any) -> Admission:
        return Admission(LoadBalancerSettings(**settings), self.machines, self.changed.set)

    async def machine(self, cluster: str, name: str, *own: str, hosts: Mapping[Any, str] = HOST) -> None:
        """The machine Pod runs on this host, and has addresses of its own; without a host it is gone."""
        found = pod(*hosts.values(), own=own) if hosts else None
        await see(self.bus, PODS, name, found, f"infra-{cluster}")

    def routes(self, *nodes: Backend) -> Mapping[str, str]:
        return self.machines.routes({"a": nodes or [M1]})

    async def routes_to(self, host: str | None) -> None:
        """Wait until the node m1 is reached through this host."""
        await eventually(lambda: self.routes() == ({"10.1.0.5/32": host} if host else {}))


@contextlib.asynccontextmanager
async def scene_on(bus: Bus) -> AsyncIterator[Scene]:
    registry, changed = Registry(bus), asyncio.Event()
    for cluster in "ab":
        place = MachinePlace(namespace=f"infra-{cluster}")
        await registry.join(Member(id=cluster, file="kubeconfig", machines=place))
    await registry.join(Member(id="c", file="kubeconfig"))
    await list_all(bus, PODS)
    machines = Machines(bus, registry, changed.set)
    async with running(registry.run(), machines.run()):
        await soon(machines.complete())
        await eventually(lambda: not machines.unlisted("a") and len(registry.members) == 3)
        yield Scene(bus, machines, changed)


@pytest_asyncio.fixture
async def scene(bus: Bus) -> AsyncIterator[Scene]:
    """Shoot a has the machine `victim`, b `thief`."""
    async with scene_on(bus) as made:
        await made.machine("a", "victim", VICTIM, "fd00:1::5")
        await made.machine("b", "thief", "10.1.0.6")
        seen = {"victim": VICTIM, "thief": "10.1.0.6"}
        of = {"victim": "a", "thief": "b"}
        await eventually(
            lambda: not any(made.machines.disowned(Node(of[n], n), ip) for n, ip in seen.items())
        )
        yield made


@rule("LB-10-unused", "LB-11-10")
async def test_a_route_follows_its_machine(scene: Scene) -> None:
    await scene.routes_to(None)
    await scene.machine("a", "m1")
    await scene.routes_to("172.18.0.2")
    await scene.machine("a", "m1", hosts=OTHER)
    await scene.routes_to("172.18.0.3")
    assert scene.machines.routes({}) == {}
    await scene.machine("a", "m1", hosts={})
    await scene.routes_to(None)


async def test_a_missing_route_is_logged_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert scene.routes() == {}
    logged = [r.message for r in caplog.records if r.name == "workers.loadbalancer.edge.machineroutes"]
    assert logged == [
        "no route to node m1 of cluster a: it has no machine Pod infra-a/m1 that runs on a host"
    ]


async def test_a_route_stays_while_the_bus_has_lost_the_machines(nats: NatsServer, nats_bus: Bus) -> None:
    async with scene_on(nats_bus) as scene:
        await scene.machine("a", "m1")
        await scene.routes_to("172.18.0.2")
        await emptied(nats, nats_bus)

        async def is_read_again() -> bool:
            # The view has a machine that is new: it follows the emptied bus.
            await scene.machine("a", "m2")
            return "10.1.0.9/32" in scene.routes(M1, node("m2", "10.1.0.9"))

        await eventually(is_read_again)
        subject = subjects.seen(ObjectRef(RUNTIME, PODS.id, PLACE.namespace, "m1"))
        assert await nats_bus.last(streams.OBJECTS, subject) is None
        assert scene.routes() == {"10.1.0.5/32": "172.18.0.2"}
        await list_all(nats_bus, PODS)
        await scene.routes_to(None)


def admitted(of: Admission, **clusters: list[Backend]) -> dict[str, set[str]]:
    """All addresses that are admitted, by cluster; those of none are left out."""
    found = of.admitted({RUNTIME: [], **clusters})
    addresses = {c: {a for node in nodes for a in node.addresses.values()} for c, nodes in found.items()}
    return {cluster: good for cluster, good in addresses.items() if good}


@cases(
    "addresses good",
    ("its-machines", [VICTIM, "fd00:1::5"], {VICTIM, "fd00:1::5"}),
    ("of-one-family", [VICTIM, "fd00:1::6"], {VICTIM}),
)
async def test_the_addresses_of_a_machine_pod_are_its_nodes(
    scene: Scene, addresses: list[str], good: set[str]
) -> None:
    assert admitted(scene.admission(), a=[node("victim", *addresses)]) == {"a": good}


@pytest.mark.parametrize("stolen", [VICTIM, GATEWAY, HOST["IPv4"], "10.1.0.99", "127.0.0.1", "8.8.8.8"])
async def test_no_node_gets_an_address_that_is_not_its_machines(scene: Scene, stolen: str) -> None:
    tried = scene.admission()
    nodes = {"a": [node("victim", VICTIM)], "b": [node("thief", stolen, created=LONG_AGO)]}
    assert admitted(tried, **nodes) == {"a": {VICTIM}}
    assert scene.machines.routes(tried.admitted(nodes)) == {f"{VICTIM}/32": HOST["IPv4"]}


async def test_nodes_may_be_where_the_settings_say(scene: Scene) -> None:
    tried = scene.admission(node_networks=[{"prefixes": ["10.2.0.0/16"], "clusters": ["b", "c"]}])
    of_c = [node("one", "10.2.0.3"), node("two", "10.3.0.3")]
    found = admitted(tried, a=[node("victim", "10.2.0.1")], b=[node("no-pod", "10.2.0.2")], c=of_c)
    assert found == {"b": {"10.2.0.2"}, "c": {"10.2.0.3"}}


@pytest.mark.parametrize(
    "address", ["172.18.0.9", "127.0.0.1", "::1", "169.254.169.254", "10.3.0.1", "10.2.255.1"]
)
async def test_nodes_that_are_no_pods_need_a_network(scene: Scene, address: str) -> None:
    tried = scene.admission(**WIDE, ranges=[{"prefixes": ["10.2.255.0/24"]}])
    for of in (tried, scene.admission()):
        assert admitted(of, c=[node("n", address)]) == {}
        assert len(of.admitted({RUNTIME: [node("n", address)]})[RUNTIME]) == 1
    assert admitted(tried, c=[node("n", "10.2.0.1")]) == {"c": {"10.2.0.1"}}


async def test_an_address_stays_with_the_node_that_had_it_first(scene: Scene) -> None:
    tried = scene.admission(**WIDE)
    mine, theirs = node("m", "10.2.0.1"), node("n", "10.2.0.1", created=LONG_AGO)
    assert admitted(tried, a=[mine]) == {"a": {"10.2.0.1"}}
    assert admitted(tried, a=[mine], b=[theirs]) == {"a": {"10.2.0.1"}}
    assert admitted(tried, b=[theirs]) == {"b": {"10.2.0.1"}}
    assert admitted(tried, a=[mine], b=[theirs]) == {"b": {"10.2.0.1"}}


@cases(
    "address good",
    ("a-pod", "10.5.0.1", True),
    ("of-the-network-of-nodes", "127.0.0.9", True),
    ("this-host", "127.0.0.1", False),
    ("this-host-by-nat64", "64:ff9b::7f00:1", False),
    ("metadata", "169.254.169.254", False),
    ("metadata-of-another-cloud", "fd00:ec2::254", False),
    ("a-load-balancer", "10.2.255.1", False),
    ("a-name", "pod.example.com", True),
)
def test_no_endpoint_slice_leads_to_this_host_or_to_metadata(address: str, good: bool) -> None:
    given = {"ranges": [{"prefixes": ["10.2.255.0/24"]}], "node_networks": [{"prefixes": ["127.0.0.8/29"]}]}
    settings, others = LoadBalancerSettings.model_validate(given), {"addresses": ["10.5.0.2"]}
    found = Object({"endpoints": [{"addresses": [address]}, others, None]})
    kept = nodeadmission.without_denied("a", found, settings).raw["endpoints"]
    assert kept == (found.raw["endpoints"] if good else [others, None])
    assert nodeadmission.without_denied(RUNTIME, found, settings) is found


async def test_a_load_balancer_leads_to_no_denied_pod(bus: Bus) -> None:
    settings, registry = LoadBalancerSettings(direct=["*"]), Registry(bus)
    changed, store = asyncio.Event(), AddressStore(bus, [range_of("10.0.0.16/28")])
    admission = Admission(settings, Machines(bus, registry, changed.set), changed.set)
    desired = DesiredState(bus, registry, store, settings, changed.set, admission)
    await registry.join(Member(id="a", file="kubeconfig"))
    labels = {"namespace": "default", "labels": {"kubernetes.io/service-name": "web"}}
    slice = Object({**pods("10.5.0.1", "127.0.0.1", "169.254.169.254").raw, "metadata": labels})
    asked = service(ports=[{**HTTP, "nodePort": None}])
    await see(bus, SERVICES, "web", asked, "default", cluster="a")
    await see(bus, ENDPOINT_SLICES, "pods", slice, "default", cluster="a")
    await list_all(bus, SERVICES, NODES, ENDPOINT_SLICES, cluster="a")
    async with running(registry.run(), store.run(), *(task() for task in desired.tasks.values())):
        await soon(store.ready())
        await addressclaims.adopt_all(store, [])
        web = Holder(cluster="a", namespace="default", name="web", uid=asked.uid, since=1.0)
        await store.write("10.0.0.17", [web], 0)
        await store.bucket.catch_up()
        await soon(desired.complete())

        async def has_one_pod() -> bool:
            balancers = (await desired.load_balancers()).values()
            found = [pod.address for one in balancers for of in one.listeners for pod in of.endpoints]
            return found == ["10.5.0.1"]

        await eventually(has_one_pod)


@cases("forged", ("older", {"created": LONG_AGO}), ("with-the-same-uid", {"uid": "u"}))
async def test_neither_age_nor_uid_of_a_node_gets_an_address(scene: Scene, forged: dict[str, str]) -> None:
    mine, theirs = node("m", "10.2.0.1", uid="u"), node("m", "10.2.0.1", **forged)
    assert admitted(scene.admission(**WIDE), a=[mine], b=[theirs]) == {"a": {"10.2.0.1"}}
    runtimes = scene.admission(**WIDE).admitted({RUNTIME: [mine], "b": [theirs]})
    assert (len(runtimes[RUNTIME]), runtimes["b"]) == (1, [])


async def test_the_next_edge_knows_which_node_had_an_address_first(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodeadmission, "_PAUSE", 0.01)
    states, mine = States(Bucket(scene.bus, streams.EDGES)), node("m", "10.2.0.1")
    async with running(states.bucket.run()):
        await soon(states.bucket.complete.wait())
        first, second = scene.admission(**WIDE), scene.admission(**WIDE)
        async with running(first.testify(states)):
            first.admitted({"b": [mine]})
            await states.testify()  # that all addresses of Services are published
            await eventually(lambda: states.nodes() == {"b": ("10.2.0.1",)})
        await states.testify()  # by the next edge
        second.restore(states)
        both = {"a": [mine], "b": [mine]}
        assert admitted(second, **both) == {"b": {"10.2.0.1"}}
        assert admitted(scene.admission(**WIDE), **both) == {"a": {"10.2.0.1"}}, "if the bus knows nothing"


async def test_an_address_waits_for_a_cluster_whose_nodes_are_not_listed(scene: Scene) -> None:
    tried = scene.admission(**WIDE)
    assert admitted(tried, b=[node("m", "10.2.0.1")]) == {"b": {"10.2.0.1"}}
    thief = {"a": [node("n", "10.2.0.1")], "b": []}
    assert tried.admitted(thief, unheard={"b"})["a"] == []
    assert admitted(tried, **thief) == {"a": {"10.2.0.1"}}


async def test_a_machine_pod_decides_against_networks_and_former_holders(scene: Scene) -> None:
    tried = scene.admission(node_networks=[{"prefixes": ["10.1.0.0/16"]}])
    claims = {"b": [node("other", VICTIM)]}
    assert admitted(tried, **claims) == {"b": {VICTIM}}, "nobody else reports it"
    claims["a"] = [node("victim", VICTIM)]
    assert admitted(tried, **claims) == {"a": {VICTIM}}
    assert admitted(tried, b=[node("thief", "10.1.0.7")]) == {}, "its machine Pod has another address"


async def test_testimonies_about_nodes_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeadmission, "_MOST_OF_CLUSTER", 3)
    monkeypatch.setattr(nodeadmission, "_PAUSE", 0.01)
    states, tried = States(Bucket(scene.bus, streams.EDGES)), scene.admission(**WIDE)
    async with running(states.bucket.run(), tried.testify(states)):
        await soon(states.bucket.complete.wait())
        await states.testify()
        tried.admitted({"b": [node(f"n{n}", f"10.2.0.{n}") for n in range(5, 9)], "a": []})
        await eventually(lambda: states.nodes() == {"b": ("10.2.0.5", "10.2.0.6", "10.2.0.7")})
        tried.admitted({"b": [node(f"n{n}", f"10.2.0.{n}") for n in range(1, 9)], "a": []})
        tried.admitted({"a": [node("n", "10.2.1.1")], "b": [node("n6", "10.2.0.6")]})
        await eventually(lambda: states.nodes() == {"a": ("10.2.1.1",), "b": ("10.2.0.6",)})


async def test_a_lasting_refusal_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeadmission, "_SETTLING", 0.01)
    tried = scene.admission()
    scene.changed.clear()
    tried.admitted({"b": [node("thief", VICTIM), node("new", "10.1.0.9")]})
    assert "b" not in tried.refused()
    await soon(scene.changed.wait())
    assert tried.refused()["b"] == (
        "node new: it has no machine Pod infra-b/new that runs on a host",
        f"node thief: {VICTIM} is no address of its machine Pod infra-b/thief",
    )
    assert "a" not in tried.refused()
    tried.admitted({"b": [node("thief", "10.1.0.6")]})
    assert "b" not in tried.refused()


async def test_machines_that_the_bus_lost_decide_nothing(scene: Scene) -> None:
    tried, known, new = scene.admission(), node("victim", VICTIM), node("new", "10.1.0.7")
    assert not tried.undecided("a", [known, new])
    await forget(scene.bus, PODS)
    await eventually(lambda: scene.machines.unlisted("a"))
    assert tried.undecided("a", [new])
    assert not tried.undecided("c", [new])
