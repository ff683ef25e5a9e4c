"""externalTrafficPolicy, and the nodes that get traffic."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from tests.host.traffic.steady import steady
from tests.host.traffic.world import Balanced, Manifest, World, tcp, udp
from tests.support import echoclient
from tests.support.rules import rule

_DRAINED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "now", "effect": "NoSchedule"}


def _on(node: str) -> Manifest:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


@pytest.fixture(scope="module")
def lonely(traffic: World) -> Iterator[str]:
    """The name of an echo server of which there is only one, on node-1.

    It goes on serving until health checks have noticed that its node has no other, on a busy machine, too.
    """
    traffic.nodes.deploy_echo(
        "lonely", replicas=1, udp=(8080,), service={"type": "ClusterIP"}, pod=_on("node-1")
    )
    container = {"name": "echo", "lifecycle": {"preStop": {"sleep": {"seconds": 15}}}}
    traffic.roll("lonely", {"containers": [container], "terminationGracePeriodSeconds": 30})
    yield "lonely"
    traffic.nodes.remove_echo("lonely")


def _home(traffic: World, lonely: str) -> str:
    """The node of the only echo server."""
    (home,) = set(traffic.pods(lonely).values())
    return home


def _other(home: str) -> str:
    return "node-1" if home != "node-1" else "node-2"


@contextlib.contextmanager
def _before(traffic: World, lonely: str, policy: str = "Local") -> Iterator[Balanced]:
    """A Service before the only echo server, which all connections and datagrams reach."""
    selector = {"app": lonely}
    with traffic.service(tcp(), udp(), selector=selector, externalTrafficPolicy=policy) as service:
        # Nodes without endpoints drop packets; over UDP, Envoy does not retry at another node.
        home = {_home(traffic, lonely)}
        echoclient.becomes(
            home, lambda: {ask().node for _ in range(30) for ask in (service.udp, service.tcp)}
        )
        yield service


@rule("LB-7-local", "LB-7-healthport")
def test_with_local_only_nodes_with_endpoints_get_traffic(traffic: World, lonely: str) -> None:
    with _before(traffic, lonely) as service:
        assert service.read()["spec"]["healthCheckNodePort"]


@pytest.mark.long  # test_a_rolling_update_fails_no_connection[Local] has new Pods
@rule("LB-7-local")
def test_with_local_connections_follow_the_pods(traffic: World, lonely: str) -> None:
    with _before(traffic, lonely) as service:
        other = _other(_home(traffic, lonely))
        with steady(service.address, lasting=0) as client:
            client.enough(50)
            traffic.roll(lonely, _on(other))
            echoclient.becomes({other}, partial(service.nodes, 20))
            echoclient.becomes({other}, lambda: set(traffic.pods(lonely).values()))
            client.enough(100)
        client.unharmed()


@rule("LB-7-local", "LB-15-13")
@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_without_endpoints_clients_are_closed_at_once(traffic: World, policy: str) -> None:
    with traffic.service(selector={"app": "nobody"}, externalTrafficPolicy=policy) as service:
        for _ in range(5):
            assert service.outcome(timeout=2.5) in ("closed", "refused")


@rule("LB-4-policy", "LB-4-healthport", "LB-7-cluster")
def test_the_policy_can_be_changed_and_restored(traffic: World) -> None:
    one, home = next(iter(traffic.pods().items()))
    traffic.merge(f"/api/v1/namespaces/default/pods/{one}", {"metadata": {"labels": {"moved": "no"}}})
    with traffic.service(selector={"app": "echo", "moved": "no"}) as service:

        def entrances() -> set[str]:
            """With Local a Pod sees the host's own address, with Cluster those of all nodes."""
            return {traffic.entrance(service.tcp().peer) for _ in range(25)}

        echoclient.becomes(traffic.names, entrances)
        with echoclient.connected(service.address) as held:
            assert echoclient.greeted(held).node == home
            for policy, wanted in (("Local", {"the host"}), ("Cluster", traffic.names)):
                service.patch(externalTrafficPolicy=policy)
                echoclient.becomes(wanted, entrances)
            echoclient.goes_on(held)


@contextlib.contextmanager
def _spread(traffic: World) -> Iterator[tuple[Balanced, list[socket.socket]]]:
    """A Service of policy Local, and a connection to each node's Pod."""
    with traffic.service(externalTrafficPolicy="Local") as service, contextlib.ExitStack() as stack:
        echoclient.becomes(traffic.names, partial(service.nodes, 30))
        held: dict[str, socket.socket] = {}
        while held.keys() != traffic.names:
            connection = stack.enter_context(echoclient.connected(service.address))
            held[echoclient.greeted(connection).node] = connection
        yield service, list(held.values())


def _spares(service: Balanced, node: str, held: list[socket.socket]) -> None:
    """Wait until the node gets no new connection; open ones continue."""
    echoclient.becomes(False, lambda: node in service.nodes(30))
    for connection in held:
        echoclient.goes_on(connection)


def _uses(service: Balanced, node: str) -> None:
    echoclient.becomes(True, lambda: node in service.nodes(15))


@rule("LB-5-taint", "LB-5-triggers", "LB-7-draining")
def test_a_node_that_drains_keeps_only_old_connections(traffic: World) -> None:
    node = "/api/v1/nodes/node-3"
    with _spread(traffic) as (service, held):
        traffic.merge(node, {"spec": {"taints": [_DRAINED]}})
        try:
            _spares(service, "node-3", held)
        finally:
            traffic.merge(node, {"spec": {"taints": None}})
        _uses(service, "node-3")


@rule("LB-5-deleted", "LB-5-triggers")
def test_a_node_being_deleted_keeps_only_old_connections(traffic: World) -> None:
    node = "/api/v1/nodes/node-3"
    with _spread(traffic) as (service, held):
        traffic.merge(node, {"metadata": {"finalizers": ["example.org/lingers"]}})
        try:
            traffic.delete(node)
            _spares(service, "node-3", held)
        finally:
            traffic.merge(node, {"metadata": {"finalizers": None}})
            traffic.register("node-3")
        _uses(service, "node-3")


@pytest.mark.long  # tests/servers/envoy/test_serving.py
@rule("LB-15-5")
def test_udp_flows_move_to_new_pods(traffic: World, lonely: str) -> None:
    """With one client socket: first to a Pod on the same node, then on another."""
    with (
        traffic.service(udp(), selector={"app": lonely}) as service,
        echoclient.flow(service.address) as client,
    ):

        def another(*before: str) -> echoclient.Answer:
            answer = echoclient.asked(client)
            assert answer.pod not in before
            return answer

        first = echoclient.until(another)
        traffic.delete(f"/api/v1/namespaces/default/pods/{first.pod}?gracePeriodSeconds=1")
        second = echoclient.until(partial(another, first.pod))
        assert second.node == first.node
        traffic.roll(lonely, _on(other := _other(second.node)))
        assert echoclient.until(partial(another, first.pod, second.pod)).node == other


@pytest.mark.parametrize("policy", [pytest.param("Cluster", marks=pytest.mark.long), "Local"])
def test_a_rolling_update_fails_no_connection(traffic: World, lonely: str, policy: str) -> None:
    with _before(traffic, lonely, policy) as service:
        before = set(traffic.pods(lonely))
        with steady(service.address, lasting=0) as client:
            client.enough(50)
            env = [{"name": "UPDATED", "value": policy}]
            traffic.roll(lonely, {"containers": [{"name": "echo", "env": env}]})
            echoclient.becomes(True, lambda: before.isdisjoint(traffic.pods(lonely).keys() or before))
            echoclient.becomes(True, lambda: before.isdisjoint(client.pods(20)))
            client.enough(100)
        client.unharmed()
