"""Ports: what is listened on, and where it leads."""

from __future__ import annotations

from functools import partial

from tests.host.traffic import clients
from tests.host.traffic.world import World, shows, tcp, udp
from tests.support import echoclient
from tests.support.rules import rule


@rule("LB-7-ports", "LB-7-nodeport", "LB-16-key")
def test_tcp_and_udp_share_a_port_number(traffic: World) -> None:
    with traffic.service(tcp(80, 8080), udp(80, 8080)) as service:
        assert echoclient.until(partial(clients.tcp, service.address, 80, b"hello")).said == b"hello"
        assert echoclient.until(partial(clients.udp, service.address, 80, b"hello")).said == b"hello"


@rule("LB-11-11")
def test_large_datagrams_pass_both_ways(traffic: World) -> None:
    payload = bytes(range(250)) * 240
    with traffic.service(udp()) as service:
        assert echoclient.until(partial(clients.udp, service.address, 80, payload)).said == payload


@rule("LB-11-11")
def test_large_datagrams_reach_clients_beyond_this_host(traffic: World) -> None:
    """They are fragmented: loopback alone has an MTU of 65,536. tests/host/install has IPv4."""
    with traffic.service(udp(), ipFamilies=["IPv6"]) as service:
        answered = partial(traffic.back_at_a_node, service.address, 80, 60_000)
        assert echoclient.until(answered) == 60_000


def test_all_nodes_and_their_pods_get_connections(traffic: World) -> None:
    with traffic.service() as service:
        echoclient.until(partial(clients.tcp, service.address, 80))
        answers = [clients.tcp(service.address, 80) for _ in range(60)]
        assert {answer.pod: answer.node for answer in answers} == traffic.pods()


@rule("LB-7-ports")
def test_a_service_has_hundreds_of_ports(traffic: World) -> None:
    ports = [tcp(number) for number in range(1000, 1250)]
    places = [f"{number}/TCP" for number in range(1000, 1250)]
    with traffic.service(*ports, ready=shows(*places)) as service:
        for number in range(1000, 1250):
            echoclient.until(partial(clients.tcp, service.address, number))
