"""Ports, addresses, source ranges, affinity and options of load balancers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

import pytest

from tests.host.traffic.world import Balanced, World, condition, ingress, shows, tcp, udp
from tests.support import echoclient
from tests.support.cases import cases
from tests.support.echoclient import Answer
from tests.support.rules import rule

_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_CLIENTS = [f"127.9.0.{number}" for number in range(1, 25)]


@rule("LB-7-ports", "LB-7-nodeport", "LB-16-key")
def test_tcp_and_udp_share_a_port_number(traffic: World) -> None:
    with traffic.service(tcp(), udp()) as service:
        assert service.served(80, b"hello").said == b"hello"
        assert service.served_by_udp(80, b"hello").said == b"hello"


@rule("LB-11-11")
def test_large_datagrams_reach_clients_beyond_this_host(traffic: World) -> None:
    """They are fragmented: loopback alone has an MTU of 65,536. tests/host/install has IPv4."""
    with traffic.service(udp(), ipFamilies=["IPv6"]) as service:
        echoclient.becomes(60_000, partial(traffic.back_at_a_node, service.address, 80, 60_000))


def test_all_nodes_and_their_pods_get_connections(traffic: World) -> None:
    with traffic.service() as service:
        service.served()
        answers = [service.tcp() for _ in range(60)]
        assert {answer.pod: answer.node for answer in answers} == traffic.pods()


@pytest.mark.long  # test_hundreds_at_once_settle_one_by_one in tests/servers/envoy
@rule("LB-7-ports")
def test_a_service_has_hundreds_of_ports(traffic: World) -> None:
    numbers = range(1000, 1250)
    places = [f"{number}/TCP" for number in numbers]
    with traffic.service(*(tcp(number) for number in numbers), ready=shows(*places)) as service:
        for number in numbers:
            service.served(number)


@rule("LB-7-affinity", "LB-11-6", "LB-15-9")
@pytest.mark.parametrize("policy", [pytest.param("Cluster", marks=pytest.mark.long), "Local"])
def test_a_client_keeps_its_node_over_tcp_and_udp(traffic: World, policy: str) -> None:
    def entrance(answer: Answer) -> str:
        """With Local, nodes forward to their own Pods and keep the client's address."""
        return answer.node if policy == "Local" else traffic.entrance(answer.peer)

    def entrances(ask: Callable[..., Answer]) -> set[str]:
        return {entrance(ask(source=source)) for source in _CLIENTS}

    with traffic.service(tcp(), udp(), sessionAffinity="ClientIP", externalTrafficPolicy=policy) as service:
        # A node whose kube-proxy does not know the Service yet is skipped: its clients reach other nodes.
        for ask in (service.tcp, service.udp):
            echoclient.becomes(traffic.names, partial(entrances, ask))
        first, again = ({s: service.tcp(source=s) for s in _CLIENTS} for _ in range(2))
        assert {s: a.pod for s, a in first.items()} == {s: a.pod for s, a in again.items()}
        by_udp = {s: service.served_by_udp(source=s) for s in _CLIENTS}
        assert {s: entrance(a) for s, a in first.items()} == {s: entrance(a) for s, a in by_udp.items()}


@pytest.mark.long  # test_the_same_port_changes[affinity] in test_zero_drop.py
@rule("LB-4-affinity")
def test_affinity_can_be_switched_off_and_on(traffic: World) -> None:
    with traffic.service(externalTrafficPolicy="Local", sessionAffinity="ClientIP") as service:
        service.served()
        for affinity, pods in (("None", 3), ("ClientIP", 1)):
            service.patch(sessionAffinity=affinity)
            echoclient.becomes(pods, lambda: len({service.tcp().pod for _ in range(25)}))


@rule("LB-7-ranges", "LB-11-6", "LB-15-8")
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_clients_outside_the_source_ranges_are_refused(traffic: World, family: str) -> None:
    # By the annotation; test_source_ranges_can_be_changed uses the field.
    allowed, refused, bits = "127.9.1.7", "127.9.2.7", 32
    if family == "IPv6":
        allowed, refused, bits = traffic.source(0x17), traffic.source(0x27), 128
    annotated = {_RANGES: f" {allowed}/{bits} , 10.0.0.0/8"}
    with traffic.service(tcp(), udp(), annotated=annotated, ipFamilies=[family]) as service:
        service.served(source=allowed)
        service.served_by_udp(source=allowed)
        assert [service.outcome(source=refused) for _ in range(5)] == ["closed"] * 5
        with pytest.raises(TimeoutError):
            service.udp(source=refused)
        service.tcp(source=allowed)


@rule("LB-4-ranges")
def test_source_ranges_can_be_changed(traffic: World) -> None:
    def served(service: Balanced) -> list[bool]:
        found = [service.outcome(source=source) for source in ("127.9.3.1", "127.9.4.1")]
        return [pod != "closed" for pod in found]

    with traffic.service(loadBalancerSourceRanges=["127.9.3.0/24"]) as service:
        echoclient.becomes([True, False], partial(served, service))
        service.patch(loadBalancerSourceRanges=["127.9.4.0/24"])
        echoclient.becomes([False, True], partial(served, service))
        service.patch(loadBalancerSourceRanges=None)
        echoclient.becomes([True, True], partial(served, service))


def test_an_invalid_annotation_closes_the_listeners(traffic: World) -> None:
    with traffic.service() as service:
        service.served()
        service.annotate(proxy_protocol="v3")
        service.refuses()
        said = service.wait(lambda s: condition(s, "LoadBalancerServing").get("status") == "False")
        assert '"v3"' in condition(said, "LoadBalancerServing")["message"]


@rule("LB-7-families", "LB-15-10")
def test_both_families_have_an_address_and_backends_of_their_own(traffic: World) -> None:
    with traffic.service(
        tcp(), udp(), ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv6", "IPv4"]
    ) as service:
        v4, v6 = service.addresses
        assert (":" in v4, ":" in v6) == (False, True)
        for address in (v4, v6):
            answer = echoclient.until(partial(echoclient.tcp, address, 80))
            assert (":" in answer.peer.rpartition(":")[0]) == (":" in address)
            echoclient.until(partial(echoclient.udp, address, 80))


@rule("LB-4-families", "LB-7-families")
def test_a_second_family_can_come_and_go(traffic: World) -> None:
    with traffic.service() as service:
        service.patch(ipFamilyPolicy="RequireDualStack")
        v4, v6 = (entry["ip"] for entry in ingress(service.wait(lambda s: len(ingress(s)) == 2)))
        assert v4 == service.address
        echoclient.until(partial(echoclient.tcp, v6, 80))
        service.patch(ipFamilyPolicy="SingleStack")
        service.wait(lambda s: [entry["ip"] for entry in ingress(s)] == [v4])
        service.tcp()
        # Removed from the host, where it is not on loopback; other addresses of the range are unreachable.
        echoclient.becomes("unreachable", partial(echoclient.outcome, v6))


@cases(
    "version header",
    ("LB-7-ports-proxy-v1", "v1", lambda client: b"PROXY TCP4 %s " % client.encode()),
    (
        "LB-7-ports-proxy-v2",
        "v2",
        lambda client: b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + socket.inet_aton(client),
    ),
)
def test_the_proxy_protocol_tells_pods_their_client(
    traffic: World, version: str, header: Callable[[str], bytes]
) -> None:
    with traffic.service(annotated={"proxy_protocol": version}) as service:
        answer = service.served(80, b"hello", source=traffic.client)
        assert answer.said.startswith(header(traffic.client))
        assert answer.said.endswith(b"hello")
        # Health checks carry no header: kube-proxies would refuse it, and no node would be healthy.
        assert service.nodes(30) == set(traffic.pods().values())


def test_an_idle_connection_is_closed(traffic: World) -> None:
    with traffic.service(annotated={"idle_timeout": "1s"}) as service:

        def close_when_idle() -> None:
            with echoclient.connected(service.address) as connection:
                echoclient.greeted(connection)
                assert connection.recv(1) == b""

        # Not every connection: where the first node did not answer, Envoy 1.40 forgets the time.
        echoclient.until(close_when_idle)


def test_connections_beyond_the_limit_are_closed(traffic: World) -> None:
    with traffic.service(annotated={"connection_limit": "2"}) as service:

        def held() -> socket.socket:
            connection = echoclient.connected(service.address)
            try:
                echoclient.greeted(connection)
            except OSError:
                connection.close()
                raise
            return connection

        # Connections that have ended count until Envoy has heard of their end.
        with echoclient.until(held) as one, echoclient.until(held):
            assert service.outcome() == "closed"
            echoclient.goes_on(one)
        service.served()
