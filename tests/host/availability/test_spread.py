"""The edge of the chart on two real nodes: from one edge to `edge.spread`, a node dies, and back to one.

Each node of the sandbox is a network namespace on one bridge, with a kubelet and a folder for Envoys of its
own; this process is a client on the same bridge. The bus and all other roles are on the first node.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator
from functools import partial
from ipaddress import ip_network
from typing import Any

import pytest

from sandbox.nodes import iproute
from sandbox.nodes.node import Node
from tests.host.traffic.steady import Steady, steady
from tests.support import echoclient, helm, release
from tests.support.release import Release
from tests.support.worldwithnodes import NodeWorld
from workers.loadbalancer.edge import placement

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
logger = logging.getLogger(__name__)

SERVICES = [f"web-{number}" for number in range(12)]
PATIENCE = 90.0
FIRST = {"kubernetes.io/hostname": "node-1"}
EDGES = {"edges": "here"}
NAMESPACE = f"--namespace={helm.NAMESPACE}"

Addresses = dict[str, list[str]]


def values(world: NodeWorld) -> dict[str, Any]:
    """One edge; what is not the edge is on the first node."""
    world.kubectl("label", "nodes", "--all", "edges=here")
    given = release.one_of_each(world)
    first = {"nodeSelector": FIRST}
    node = world.nodes[0]
    prefixes = [
        str(list(ip_network(f"{node.v4}/24", strict=False).subnets(new_prefix=26))[2]),
        f"{ip_network(f'{node.v6}/64', strict=False)[0x1000]}/116",
    ]
    return {
        **given,
        "run": {"enabled": True, **first},
        "nats": {**given["nats"], **first},
        "bind": {"enabled": False},
        "admit": {"enabled": False},
        "edge": {"enabled": True, "nodeSelector": EDGES},
        "settings": {**given["settings"], "loadbalancer": {"ranges": [{"prefixes": prefixes}]}},
    }


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    yield from release.fixture(tmp_path_factory, "laptop", values, nodes=2, edge=True)


@pytest.fixture(scope="module")
def addresses(installed: Release) -> Iterator[Addresses]:
    """Services of Pods on the first node, and the addresses of each."""
    node = installed.node
    node.deploy_echo("web", replicas=1, pod={"nodeSelector": FIRST}, service={"type": "ClusterIP"})
    with contextlib.ExitStack() as stack:
        for name in SERVICES:
            exposed = node.exposed(
                name,
                "web",
                type="LoadBalancer",
                ipFamilyPolicy="RequireDualStack",
                externalTrafficPolicy="Local",
            )
            stack.enter_context(exposed)
        found = {}
        for name in SERVICES:
            wanted = "--for=jsonpath={.status.loadBalancer.ingress[1].ip}"
            node.kubectl("wait", f"service/{name}", wanted, "--timeout=60s")
            status = node.api.read(f"/api/v1/namespaces/default/services/{name}")["status"]
            found[name] = [one["ip"] for one in status["loadBalancer"]["ingress"]]
        yield found
    node.remove_echo("web")


def of(node: Node) -> set[str]:
    """The addresses of load balancers on a node."""
    links = iproute.asked("-n", node.namespace, "address", "show")
    found = [one for link in links for one in link["addr_info"]]
    return {one["local"] for one in found if one["prefixlen"] in (32, 128) and one["scope"] == "global"}


def v4(addresses: Iterable[str]) -> str:
    return min(one for one in addresses if ":" not in one)


def serves(address: str, patience: float = PATIENCE) -> None:
    echoclient.until(partial(echoclient.tcp, address, 8080, b"hello", timeout=1), patience=patience)


def test_one_edge_serves_all(installed: Release, addresses: Addresses) -> None:
    found = [of(node) for node in installed.node.nodes]
    every = {one for some in addresses.values() for one in some}
    assert sorted(map(len, found)) == [0, len(every)]
    for some in addresses.values():
        serves(v4(some))


def test_an_upgrade_spreads_the_addresses(installed: Release, addresses: Addresses) -> None:
    with steady(v4(addresses["web-0"]), 8080, rate=20, lasting=0) as clients:
        installed.upgrade("--set=edge.spread=true")
        check_spread(installed, addresses)
        clients.enough(10)
    tell("an upgrade to edge.spread", clients)


def check_spread(installed: Release, addresses: Addresses) -> None:
    """Each node has its share, and all addresses serve."""
    shares: dict[str, set[str]] = {node.name: set() for node in installed.node.nodes}
    for some in addresses.values():
        shares[placement.placed(v4(some), shares)] |= set(some)
    assert all(shares.values())
    echoclient.becomes(shares, lambda: {node.name: of(node) for node in installed.node.nodes})
    for some in addresses.values():
        for address in some:
            serves(address)


def test_addresses_of_a_dead_node_serve_on_the_other(installed: Release, addresses: Addresses) -> None:
    world = installed.node
    one, two = world.nodes
    kept, moving = of(one), of(two)
    with (
        steady(v4(kept), 8080, rate=5, lasting=5) as clients,
        steady(v4(moving), 8080, rate=20, lasting=0) as moved,
    ):
        world.kill(two)
        for address in moving:
            serves(address, 30)
        clients.enough(10)
        moved.enough(10)
    clients.unharmed()
    tell("a node dies", moved)
    assert of(one) == kept | moving

    world.repair(two)
    check_spread(installed, addresses)


def tell(what: str, clients: Steady) -> None:
    """The figures, for docs/benchmarks.md."""
    served = [when for when, _ in clients.served]
    away = max(after - before for before, after in itertools.pairwise(served))
    logger.warning("%s: a load balancer was away for %.1f s", what, away)


def test_an_edge_is_replaced_without_a_change(installed: Release, addresses: Addresses) -> None:
    before = list(map(of, installed.node.nodes))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(steady(v4(some), 8080, rate=5, lasting=5)) for some in before]
        for name in ("restart", "status"):
            installed.node.kubectl("rollout", name, "daemonset/windowbox-edge", NAMESPACE, patience=180)
        for one in clients:
            one.enough(10)
    for one in clients:
        one.unharmed()
    assert list(map(of, installed.node.nodes)) == before


def test_addresses_of_a_node_that_leaves_serve_on_the_other(installed: Release, addresses: Addresses) -> None:
    world = installed.node
    one, two = world.nodes
    every = of(one) | of(two)
    with steady(v4(of(two)), 8080, rate=20, lasting=0) as clients:
        world.kubectl("label", "node", two.name, "edges-")
        echoclient.becomes([every, set()], lambda: list(map(of, world.nodes)))
        for address in every:
            serves(address, 30)
        clients.enough(10)
    tell("a node leaves", clients)
    world.kubectl("label", "node", two.name, "edges=here")
    check_spread(installed, addresses)


def test_an_upgrade_back_leaves_one_edge(installed: Release, addresses: Addresses) -> None:
    every = {one for some in addresses.values() for one in some}

    def check() -> None:
        assert sorted((of(node) for node in installed.node.nodes), key=len) == [set(), every]

    with steady(v4(addresses["web-0"]), 8080, rate=20, lasting=0) as clients:
        installed.upgrade("--set=edge.spread=false")
        echoclient.until(check, patience=PATIENCE)
        for some in addresses.values():
            serves(v4(some))
        clients.enough(10)
    tell("an upgrade to one edge", clients)
