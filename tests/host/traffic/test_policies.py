"""externalTrafficPolicy, and which nodes get traffic."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from tests.host.traffic import clients
from tests.host.traffic.steady import steady
from tests.host.traffic.world import Balanced, Manifest, World, udp
from tests.support import echoclient
from tests.support.rules import rule

_DRAINED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "now", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def lonely(traffic: World) -> Iterator[str]:
    """The name of an echo server of which there is only one, on node-1.

    It goes on serving until health checks have noticed that its node has no other, on a busy machine, too.
    """
    traffic.nodes.deploy_echo(
        "lonely", replicas=1, udp=(8080,), service={"type": "ClusterIP"}, pod=_on("node-1")
    )
    container = {"name": "echo", "lifecycle": {"preStop": {"sleep": {"seconds": 15}}}}
    _roll(traffic, {"containers": [container], "terminationGracePeriodSeconds": 30})
    yield "lonely"
    traffic.nodes.remove_echo("lonely")


@rule("LB-7-cluster")
def test_with_cluster_all_nodes_take_connections(traffic: World) -> None:
    with traffic.service() as service:
        echoclient.until(partial(_enter, traffic, service, _names(traffic)))


@rule("LB-7-local", "LB-7-healthport")
def test_with_local_only_nodes_with_endpoints_get_traffic(traffic: World, lonely: str) -> None:
    with _local(traffic, lonely) as service:
        assert service.read()["spec"]["healthCheckNodePort"]
        echoclient.until(partial(_nothing_lost, service))
        # Nodes without endpoints swallow what they get; over UDP, nobody tries another in their place.
        assert {clients.udp(service.address, 80).node for _ in range(30)} == {"node-1"}
        echoclient.until(partial(clients.tcp, service.address, 80))
        assert {clients.tcp(service.address, 80).node for _ in range(30)} == {"node-1"}


@rule("LB-7-local")
def test_with_local_connections_follow_the_pods(traffic: World, lonely: str) -> None:
    with _local(traffic, lonely) as service:
        echoclient.until(partial(_nothing_lost, service))
        with steady(service.address, lasting=0) as client:
            client.enough(50)
            _roll(traffic, _on("node-2"))
            echoclient.until(partial(_served_by, service, "node-2"))
            echoclient.until(lambda: _eq(set(traffic.pods(lonely).values()), {"node-2"}))
            client.enough(100)
        client.unharmed()


@rule("LB-7-local", "LB-15-13")
@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_without_endpoints_nobody_is_kept_waiting(traffic: World, policy: str) -> None:
    with traffic.service(selector={"app": "nobody"}, externalTrafficPolicy=policy) as service:
        for _ in range(5):
            assert clients.outcome(service.address, 80, timeout=2.5) in ("closed", "refused")


@rule("LB-4-policy", "LB-4-healthport")
def test_the_policy_can_be_changed_to_and_fro(traffic: World) -> None:
    one = next(iter(traffic.pods()))
    selector = {"app": "echo", "moved": "no"}
    traffic.merge(f"/api/v1/namespaces/default/pods/{one}", {"metadata": {"labels": {"moved": "no"}}})
    home = traffic.pods()[one]
    with traffic.service(selector=selector) as service:
        echoclient.until(partial(_enter, traffic, service, _names(traffic)))
        with clients.connected(service.address, 80) as held:
            assert clients.greeted(held).node == home
            for policy, entrances in (("Local", {"the host"}), ("Cluster", _names(traffic))):
                service.patch(externalTrafficPolicy=policy)
                echoclient.until(partial(_enter, traffic, service, entrances))
            clients.goes_on(held)


@rule("LB-5-taint", "LB-5-triggers", "LB-7-draining")
def test_a_node_that_drains_gets_nothing_new_and_keeps_the_old(traffic: World) -> None:
    with _spread(traffic) as (service, held):
        node = "/api/v1/nodes/node-3"
        traffic.merge(node, {"spec": {"taints": [_DRAINED]}})
        try:
            echoclient.until(partial(_spared, service, "node-3"))
            for connection in held:
                clients.goes_on(connection)
        finally:
            traffic.merge(node, {"spec": {"taints": None}})
        echoclient.until(partial(_not_spared, service, "node-3"))


@rule("LB-5-deleted", "LB-5-triggers")
def test_a_node_being_deleted_keeps_only_old_connections(traffic: World) -> None:
    node = "/api/v1/nodes/node-3"
    with _spread(traffic) as (service, held):
        traffic.merge(node, {"metadata": {"finalizers": ["example.org/lingers"]}})
        try:
            traffic.delete(node)
            echoclient.until(partial(_spared, service, "node-3"))
            for connection in held:
                clients.goes_on(connection)
        finally:
            traffic.merge(node, {"metadata": {"finalizers": None}})
            traffic.register("node-3")
        echoclient.until(partial(_not_spared, service, "node-3"))


@rule("LB-5-excluded")
def test_a_labelled_node_gets_nothing(traffic: World) -> None:
    label, node = "node.kubernetes.io/exclude-from-external-load-balancers", "/api/v1/nodes/node-2"
    with _spread(traffic) as (service, held):
        traffic.merge(node, {"metadata": {"labels": {label: ""}}})
        try:
            echoclient.until(partial(_spared, service, "node-2"))
            for connection in held:
                clients.goes_on(connection)
            traffic.merge(node, {"metadata": {"labels": {label: "false"}}})
            echoclient.until(partial(_not_spared, service, "node-2"))
        finally:
            traffic.merge(node, {"metadata": {"labels": {label: None}}})


@rule("LB-15-5")
def test_udp_reaches_the_pods_that_come_after(traffic: World, lonely: str) -> None:
    """While the client keeps its socket: first on the same node, then on another."""
    with (
        traffic.service(udp(), selector={"app": lonely}) as service,
        clients.flow(service.address, 80) as client,
    ):
        first = echoclient.until(partial(clients.asked, client))
        traffic.delete(f"/api/v1/namespaces/default/pods/{first.pod}?gracePeriodSeconds=1")
        second = echoclient.until(partial(_another, client, {first.pod}))
        assert second.node == first.node
        other = "node-1" if second.node != "node-1" else "node-2"
        _roll(traffic, _on(other))
        third = echoclient.until(partial(_another, client, {first.pod, second.pod}))
        assert third.node == other


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_a_rolling_update_disturbs_nobody(traffic: World, lonely: str, policy: str) -> None:
    with _local(traffic, lonely, externalTrafficPolicy=policy) as service:
        echoclient.until(partial(_nothing_lost, service))
        before = set(traffic.pods(lonely))
        with steady(service.address, lasting=0) as client:
            client.enough(50)
            _roll(traffic, {"containers": [{"name": "echo", "env": [{"name": "UPDATED", "value": policy}]}]})
            echoclient.until(lambda: _disjoint(before, set(traffic.pods(lonely))))
            echoclient.until(lambda: _disjoint(before, client.pods(20)))
            client.enough(100)
        client.unharmed()


@contextlib.contextmanager
def _spread(traffic: World) -> Iterator[tuple[Balanced, list[socket.socket]]]:
    """A Service of policy Local, and a connection to each node's Pod."""
    with traffic.service(externalTrafficPolicy="Local") as service, contextlib.ExitStack() as stack:
        echoclient.until(partial(_all_serve, traffic, service))
        held: dict[str, socket.socket] = {}
        while held.keys() != _names(traffic):
            connection = stack.enter_context(clients.connected(service.address, 80))
            held[clients.greeted(connection).node] = connection
        yield service, list(held.values())


def _local(
    traffic: World, app: str, externalTrafficPolicy: str = "Local"
) -> contextlib.AbstractContextManager[Balanced]:
    ports: list[Manifest] = [
        {"name": protocol.lower(), "port": 80, "targetPort": 8080, "protocol": protocol}
        for protocol in ("TCP", "UDP")
    ]
    return traffic.service(*ports, selector={"app": app}, externalTrafficPolicy=externalTrafficPolicy)


def _on(node: str) -> Manifest:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def _roll(traffic: World, pod: Manifest) -> None:
    """Change the Pods of the Deployment, and wait until those are ready that are as they should be."""
    traffic.roll("lonely", pod)


def _names(traffic: World) -> set[str]:
    return {node.name for node in traffic.nodes.nodes}


def _nothing_lost(service: Balanced) -> None:
    for _ in range(10):
        clients.udp(service.address, 80)
        clients.tcp(service.address, 80)


def _served_by(service: Balanced, node: str) -> None:
    assert {clients.tcp(service.address, 80).node for _ in range(20)} == {node}


def _spared(service: Balanced, node: str) -> None:
    assert node not in {clients.tcp(service.address, 80).node for _ in range(30)}


def _all_serve(world: World, service: Balanced) -> None:
    assert {clients.tcp(service.address, 80).node for _ in range(30)} == _names(world)


def _not_spared(service: Balanced, node: str) -> None:
    assert node in {clients.tcp(service.address, 80).node for _ in range(15)}


def _enter(world: World, service: Balanced, wanted: set[str]) -> None:
    """With Local a Pod sees the host's own address, with Cluster those of all nodes."""
    answers = [clients.tcp(service.address, 80) for _ in range(25)]
    assert {world.entrance(answer.peer) for answer in answers} == wanted


def _another(client: socket.socket, before: set[str]) -> clients.Answer:
    answer = clients.asked(client)
    assert answer.pod not in before
    return answer


def _disjoint(one: set[str], other: set[str]) -> None:
    assert other
    assert not one & other


def _eq(found: object, wanted: object) -> None:
    assert found == wanted
