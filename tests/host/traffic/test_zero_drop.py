"""Changes of Services and nodes fail no connection of clients that connect all the time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import pytest

from tests.host.traffic.steady import Steady, steady
from tests.host.traffic.world import Balanced, World, shows, tcp
from tests.support import echoclient
from tests.support.cases import cases, long
from tests.support.rules import rule


@contextlib.contextmanager
def _served(traffic: World) -> Iterator[tuple[Balanced, Steady]]:
    """A Service whose nodes all serve, and its client."""
    with traffic.service(externalTrafficPolicy="Local") as service:
        echoclient.becomes(traffic.names, partial(service.nodes, 20))
        with steady(service.address) as client:
            client.enough(50)
            yield service, client


def _pod_of(traffic: World, node: str) -> str:
    return {home: pod for pod, home in traffic.pods().items()}.get(node, "")


def _serves(client: Steady, pod: str) -> bool:
    """Whether the Pod is among those that serve the next connections."""
    client.enough(30)
    return pod in client.pods(30)


@pytest.mark.long  # test_a_node_being_deleted_keeps_only_old_connections, test_a_node_fails
@rule("LB-11-1", "LB-5-sync", "LB-5-addresses", "LB-15-4")
def test_a_node_is_removed_and_added(traffic: World) -> None:
    gone = _pod_of(traffic, "node-3")
    with _served(traffic) as (_, client):
        traffic.nodes.kubectl("cordon", "node-3")
        traffic.delete("/api/v1/nodes/node-3")
        try:
            echoclient.becomes(False, lambda: _serves(client, gone))
            client.enough()
        finally:
            traffic.register("node-3")
        echoclient.becomes(True, lambda: _serves(client, gone))
        client.enough()
    client.unharmed()


@pytest.mark.long  # test_changed_nodes_cause_one_event, and the test before
@rule("LB-5-excluded", "LB-15-4")
def test_a_node_is_excluded_and_included(traffic: World) -> None:
    gone = _pod_of(traffic, "node-2")
    with _served(traffic) as (_, client):
        with traffic.excluded("node-2"):
            echoclient.becomes(False, lambda: _serves(client, gone))
        echoclient.becomes(True, lambda: _serves(client, gone))
    client.unharmed()


@rule("LB-11-3", "LB-15-4", "LB-15-3")
def test_ports_come_and_go(traffic: World) -> None:
    with _served(traffic) as (service, client):
        for number in (81, 82):
            service.patch(ports=[tcp(80), tcp(number, 8081)])
            service.wait(shows("80/TCP", f"{number}/TCP"))
            service.served(number)
        service.patch(ports=[tcp(80)])
        service.wait(shows("80/TCP"))
        service.refuses(82)
        client.enough()
    client.unharmed()


@rule("LB-15-4")
def test_connections_of_a_port_that_goes_are_finished(traffic: World) -> None:
    with traffic.service(tcp(80), tcp(81)) as service:
        service.served(81)
        with echoclient.connected(service.address, 81) as held:
            echoclient.greeted(held)
            service.patch(ports=[tcp(80)])
            service.wait(shows("80/TCP"))
            service.refuses(81)
            # The node port is released as well; conntrack keeps the connections through it.
            with steady(service.address, lasting=0) as client:
                client.enough(250)
            echoclient.goes_on(held)


@rule("LB-15-4")
@cases(
    "field there back",
    long("ranges", "loadBalancerSourceRanges", ["127.0.0.0/16"], None),
    ("affinity", "sessionAffinity", "ClientIP", "None"),
    long("families", "ipFamilyPolicy", "RequireDualStack", "SingleStack"),
)
def test_the_same_port_changes(traffic: World, field: str, there: object, back: object) -> None:
    with _served(traffic) as (service, client):
        before = len(service.events())
        for value in (there, back):
            service.patch(**{field: value})
            client.enough(150)
        assert len(service.events()) >= before
    client.unharmed()


@rule("LB-15-15", "LB-15-7")
@pytest.mark.parametrize("how", ["killed", pytest.param("black-holed", marks=pytest.mark.long)])
def test_a_node_fails(traffic: World, how: str) -> None:
    lost, node = _pod_of(traffic, "node-3"), traffic.nodes.sandbox.node("node-3")
    with _served(traffic) as (_, client):
        if how == "killed":
            traffic.nodes.kill(node)
        else:
            node.cut()
        try:
            echoclient.becomes(False, lambda: _serves(client, lost))
            client.enough(200)
        finally:
            traffic.nodes.repair(node)
        echoclient.becomes(True, lambda: _serves(client, _pod_of(traffic, "node-3")))
    assert client.failed == []
    assert {broken.partition(" to ")[2].partition(":")[0] for broken in client.broken} <= {lost}
