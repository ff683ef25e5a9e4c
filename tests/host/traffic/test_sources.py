"""Who may come, from where, and who answers him."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

import pytest

from tests.host.traffic import clients
from tests.host.traffic.clients import Answer
from tests.host.traffic.world import Balanced, World, condition, tcp, udp
from tests.support import echoclient
from tests.support.rules import rule

_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_CLIENTS = [f"127.9.0.{number}" for number in range(1, 25)]


@rule("LB-7-affinity", "LB-11-6", "LB-15-9")
@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_a_client_stays_where_it_was_over_tcp_and_udp(traffic: World, policy: str) -> None:
    with traffic.service(tcp(), udp(), sessionAffinity="ClientIP", externalTrafficPolicy=policy) as service:
        echoclient.until(partial(_all_enter, traffic, service, policy))
        first = {source: clients.tcp(service.address, 80, source=source) for source in _CLIENTS}
        again = {source: clients.tcp(service.address, 80, source=source) for source in _CLIENTS}
        assert {s: a.pod for s, a in first.items()} == {s: a.pod for s, a in again.items()}
        by_udp = {
            s: echoclient.until(partial(clients.udp, service.address, source=s, port=80)) for s in _CLIENTS
        }
        entered = {s: _entrance(traffic, policy, answer) for s, answer in first.items()}
        assert entered == {s: _entrance(traffic, policy, answer) for s, answer in by_udp.items()}


@rule("LB-4-affinity")
def test_affinity_can_be_switched_off_and_on(traffic: World) -> None:
    with traffic.service(externalTrafficPolicy="Local", sessionAffinity="ClientIP") as service:
        echoclient.until(partial(clients.tcp, service.address, 80))
        for affinity, wanted in (("None", 3), ("ClientIP", 1)):
            service.patch(sessionAffinity=affinity)
            echoclient.until(partial(_distinct_pods, service, wanted))


@rule("LB-7-ranges", "LB-11-6", "LB-15-8")
@pytest.mark.parametrize("by", ["field", "annotation"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_who_comes_from_elsewhere_hears_nothing(traffic: World, family: str, by: str) -> None:
    allowed, refused = ("127.9.1.7", "127.9.2.7")
    if family == "IPv6":
        allowed, refused = traffic.source(0x17), traffic.source(0x27)
    prefix = f"{allowed}/32" if family == "IPv4" else f"{allowed}/128"
    field = [prefix] if by == "field" else []
    annotated = {_RANGES: f" {prefix} , 10.0.0.0/8"} if by == "annotation" else {}
    with traffic.service(
        tcp(), udp(), annotated=annotated, ipFamilies=[family], loadBalancerSourceRanges=field
    ) as service:
        echoclient.until(partial(clients.tcp, service.address, 80, source=allowed))
        echoclient.until(partial(clients.udp, service.address, 80, source=allowed))
        for _ in range(5):
            assert clients.outcome(service.address, 80, source=refused) == "closed"
        with pytest.raises(TimeoutError):
            clients.udp(service.address, 80, source=refused)
        clients.tcp(service.address, 80, source=allowed)


@rule("LB-4-ranges")
def test_source_ranges_can_be_changed(traffic: World) -> None:
    with traffic.service(loadBalancerSourceRanges=["127.9.3.0/24"]) as service:
        echoclient.until(partial(_served_of, service, ["127.9.3.1"], ["127.9.4.1"]))
        service.patch(loadBalancerSourceRanges=["127.9.4.0/24"])
        echoclient.until(partial(_served_of, service, ["127.9.4.1"], ["127.9.3.1"]))
        service.patch(loadBalancerSourceRanges=None)
        echoclient.until(partial(_served_of, service, ["127.9.4.1", "127.9.3.1"], []))


def test_what_cannot_be_understood_closes_the_door(traffic: World) -> None:
    with traffic.service() as service:
        echoclient.until(partial(clients.tcp, service.address, 80))
        service.annotate(proxy_protocol="v3")
        echoclient.until(partial(_is, "refused", service.address))
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
            answer = echoclient.until(partial(clients.tcp, address, 80))
            assert (":" in answer.peer.rpartition(":")[0]) == (":" in address)
            echoclient.until(partial(clients.udp, address, 80))


@rule("LB-4-families", "LB-7-families")
def test_a_second_family_can_come_and_go(traffic: World) -> None:
    with traffic.service() as service:
        service.patch(ipFamilyPolicy="RequireDualStack")
        both = service.wait(lambda s: len(s["status"]["loadBalancer"].get("ingress", [])) == 2)
        v4, v6 = (entry["ip"] for entry in both["status"]["loadBalancer"]["ingress"])
        assert v4 == service.address
        echoclient.until(partial(clients.tcp, v6, 80))
        service.patch(ipFamilyPolicy="SingleStack")
        service.wait(lambda s: [e["ip"] for e in s["status"]["loadBalancer"]["ingress"]] == [v4])
        clients.tcp(v4, 80)
        # Removed from the host, where it is not on loopback; other addresses of the range are unreachable.
        echoclient.until(partial(_is, "unreachable", v6))


@pytest.mark.parametrize(
    ("version", "header"),
    [
        pytest.param("v1", lambda client: b"PROXY TCP4 %s " % client.encode(), id="LB-7-ports-proxy-v1"),
        pytest.param(
            "v2", lambda client: b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + socket.inet_aton(client), id="v2"
        ),
    ],
)
def test_pods_are_told_of_the_client_by_the_proxy_protocol(
    traffic: World, version: str, header: Callable[[str], bytes]
) -> None:
    with traffic.service(annotated={"proxy_protocol": version}) as service:
        asking = partial(clients.tcp, service.address, 80, b"hello", source=traffic.client)
        answer = echoclient.until(asking)
        assert answer.said.startswith(header(traffic.client))
        assert answer.said.endswith(b"hello")
        # The header was for the Pods alone: those who answer health checks did not take offence.
        assert {clients.tcp(service.address, 80).node for _ in range(30)} == set(traffic.pods().values())


def test_a_connection_on_which_nobody_speaks_is_closed(traffic: World) -> None:
    with traffic.service(annotated={"idle_timeout": "1s"}) as service:
        # Not every connection: where the first node did not answer, Envoy 1.40 forgets the time.
        echoclient.until(partial(_closed_when_idle, service.address))


def _closed_when_idle(address: str) -> None:
    with clients.connected(address, 80) as connection:
        clients.greeted(connection)
        assert connection.recv(1) == b""


def test_no_more_connections_than_asked_for(traffic: World) -> None:
    with traffic.service(annotated={"connection_limit": "2"}) as service:
        # Connections that have ended count until Envoy has heard of their end.
        with echoclient.until(partial(_held, service)) as one, echoclient.until(partial(_held, service)):
            assert clients.outcome(service.address, 80) == "closed"
            clients.goes_on(one)
        echoclient.until(partial(clients.tcp, service.address, 80))


def _held(service: Balanced) -> socket.socket:
    connection = clients.connected(service.address, 80)
    try:
        clients.greeted(connection)
    except OSError:
        connection.close()
        raise
    return connection


def _all_enter(world: World, service: Balanced, policy: str) -> None:
    """A node that has not heard of the Service is left out for a while, and its clients go elsewhere."""
    for ask in (clients.tcp, clients.udp):
        answers = [ask(service.address, 80, source=source) for source in _CLIENTS]
        entered = {_entrance(world, policy, answer) for answer in answers}
        assert entered == {node.name for node in world.nodes.nodes}


def _entrance(world: World, policy: str, answer: Answer) -> str:
    """With Local nodes hand on to their own Pods, and do not put themselves in front."""
    return answer.node if policy == "Local" else world.entrance(answer.peer)


def _distinct_pods(service: Balanced, wanted: int) -> None:
    assert len({clients.tcp(service.address, 80).pod for _ in range(25)}) == wanted


def _served_of(service: Balanced, allowed: list[str], refused: list[str]) -> None:
    assert all(clients.tcp(service.address, 80, source=source).pod for source in allowed)
    assert {clients.outcome(service.address, 80, source=source) for source in refused} <= {"closed"}


def _is(wanted: str, address: str) -> None:
    assert clients.outcome(address, 80) == wanted
