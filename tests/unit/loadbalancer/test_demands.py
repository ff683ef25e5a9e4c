"""Which ports a Service asks to be served at, and which of them are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.lbobjects import DNS, HTTP, UID, nonsense, service
from tests.support.rules import rule
from windowbox.models.loadbalancers import Family, canonical, family
from windowbox.models.objects import Object
from workers.loadbalancer.spec.demands import Demand, Port, demand
from workers.loadbalancer.spec.options import Refusal


def asked(found: Object) -> Demand:
    return demand(found, direct=False)


def only(found: Demand) -> Refusal:
    assert len(found.refusals) == 1
    return found.refusals[0]


@rule("LB-7-ports")
def test_a_plain_service_asks_for_little() -> None:
    assert asked(service()) == Demand(
        uid=UID,
        families=("IPv4",),
        ports=(Port("http", 80, "TCP", 30080, 8080),),
        local=False,
        health_port=10256,
        affinity=False,
        allowed=None,
        proxy_protocol=None,
        idle_timeout=None,
        max_connections=None,
        requested=(),
        share=None,
        refusals=(),
    )


@rule("LB-16-key")
@rule("LB-7-ports")
def test_one_number_may_be_served_over_both_protocols() -> None:
    found = asked(service(ports=[DNS | {"protocol": "TCP", "name": "dns-tcp"}, DNS]))
    assert found.places == ("53/TCP", "53/UDP")
    assert found.refusals == ()


@cases(
    "spec families",
    ("LB-7-families-ipv4-first", {"ipFamilies": ["IPv6", "IPv4"]}, ("IPv4", "IPv6")),
    ("LB-7-families-ipv6", {"ipFamilies": ["IPv6"]}, ("IPv6",)),
    ("LB-7-families-absent", {"ipFamilies": None}, ("IPv4",)),
    (
        "LB-7-families-by-cluster-ips",
        {"ipFamilies": None, "clusterIPs": ["fd00::1", "10.0.0.1"]},
        ("IPv4", "IPv6"),
    ),
    ("LB-7-families-by-cluster-ip", {"ipFamilies": [], "clusterIP": "fd00::1"}, ("IPv6",)),
    ("LB-7-families-nonsense", {"ipFamilies": ["IPX"], "clusterIP": "None"}, ("IPv4",)),
)
def test_an_address_of_each_family_is_asked_for(spec: dict[str, Any], families: tuple[str, ...]) -> None:
    assert asked(service(**spec)).families == families


@cases(
    "spec port",
    ("LB-16-health+LB-7-cluster", {"externalTrafficPolicy": "Cluster"}, 10256),
    (
        "LB-16-health+LB-7-local+LB-7-healthport",
        {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31234},
        31234,
    ),
    (
        "LB-7-healthport-of-local-only",
        {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": 31234},
        10256,
    ),
    ("LB-7-healthport-missing", {"externalTrafficPolicy": "Local"}, 10256),
    ("LB-7-healthport-wrong", {"externalTrafficPolicy": "Local", "healthCheckNodePort": True}, 10256),
)
def test_health_is_asked_where_the_policy_says(spec: dict[str, Any], port: int) -> None:
    found = asked(service(**spec))
    assert found.health_port == port
    assert found.local is (spec["externalTrafficPolicy"] == "Local")


@rule("LB-7-affinity")
def test_affinity_is_asked_for_by_client_ip() -> None:
    assert asked(service(sessionAffinity="ClientIP")).affinity
    assert not asked(service(sessionAffinity="None")).affinity


@cases(
    "spec refusal",
    (
        "LB-7-sctp",
        HTTP | {"protocol": "SCTP", "port": 9, "name": "sig"},
        Refusal(
            "SCTPNotSupported",
            'port 9/SCTP ("sig") is not served: load balancers here carry TCP and UDP, not SCTP; the '
            "Service's other ports are not affected. Use TCP, or reach the Pods by a node port",
            (9, "SCTP"),
        ),
    ),
    (
        "LB-7-portless+LB-11-12",
        {"port": 9, "protocol": "TCP"},
        Refusal(
            "NodePortMissing",
            "port 9/TCP is not served: spec.ports[0].nodePort is not set, and Pods of this cluster "
            "cannot be reached directly. Set spec.allocateLoadBalancerNodePorts to true, or give a "
            "nodePort",
            (9, "TCP"),
        ),
    ),
    (
        "LB-7-ports-protocol",
        HTTP | {"protocol": "DCCP"},
        Refusal("UnsupportedProtocol", 'spec.ports[0].protocol is "DCCP": only TCP and UDP are served', None),
    ),
    (
        "LB-7-ports-number",
        HTTP | {"port": 0},
        Refusal("InvalidPort", 'spec.ports[0].port is "0": give a number of 1 to 65535', None),
    ),
)
def test_a_port_that_cannot_be_served_leaves_the_others_alone(spec: dict[str, Any], refusal: Refusal) -> None:
    alone, beside = asked(service(ports=[spec])), asked(service(ports=[spec, DNS]))
    assert (alone.ports, alone.refusals) == ((), (refusal,))
    assert (beside.places, beside.refusals) == (("53/UDP",), (refusal,))


@rule("LB-7-ports")
def test_a_port_named_twice_is_served_once() -> None:
    found = asked(service(ports=[HTTP, HTTP | {"nodePort": 30081}]))
    assert [port.node_port for port in found.ports] == [30080]
    assert only(found).reason == "DuplicatePort"


@rule("LB-7-portless")
def test_where_pods_can_be_reached_no_node_port_is_needed() -> None:
    found = demand(service(ports=[{"port": 80, "targetPort": "web"}]), direct=True)
    assert found.ports == (Port("", 80, "TCP", None, "web"),)
    assert found.refusals == ()


@rule("LB-7-portless")
def test_a_node_port_that_is_left_is_used() -> None:
    assert demand(service(), direct=True).ports[0].node_port == 30080


@pytest.mark.parametrize("ports", [None, [], {}, "80"])
def test_without_ports_there_is_nothing_to_serve(ports: Any) -> None:
    found = asked(service(ports=ports))
    assert (found.ports, only(found).reason) == ((), "NoPorts")


@given(nonsense, st.booleans())
def test_nonsense_gets_an_answer(found: Object, direct: bool) -> None:
    answer = demand(found, direct=direct)
    assert answer.families
    assert len(set(answer.places)) == len(answer.ports)
    assert answer.ports or answer.refusals
    assert all(canonical(address) == address for address in answer.requested)
    assert {family(address) for address in answer.requested} <= set(answer.families)
    assert all(len(refusal.note) < 1000 for refusal in answer.refusals)


@cases(
    "policy offered families",
    ("LB-7-families-content-with-one", "PreferDualStack", ("IPv4",), ("IPv4",)),
    ("LB-7-families-content-with-the-other", "PreferDualStack", ("IPv6",), ("IPv6",)),
    ("LB-7-families-nothing-to-be-had", "PreferDualStack", (), ("IPv4", "IPv6")),
    ("LB-7-families-insists", "RequireDualStack", ("IPv4",), ("IPv4", "IPv6")),
)
def test_who_only_prefers_both_families_is_content_with_what_there_is(
    policy: str, offered: tuple[Family, ...], families: tuple[Family, ...]
) -> None:
    both = service(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy=policy)
    assert demand(both, direct=False, offered=offered).families == families


def _ports(count: int) -> list[dict[str, Any]]:
    return [HTTP | {"name": f"p{n}", "port": n, "nodePort": 30000 + n} for n in range(1, count + 1)]


def _ranges(count: int) -> list[str]:
    return [f"10.{n // 256}.{n % 256}.0/25" for n in range(count)]


@cases(
    "ports ranges served reasons",
    ("most-ports", 250, 0, 250, []),
    ("one-port-too-many", 251, 0, 250, ["TooManyPorts"]),
    ("most-ranges", 1, 1000, 1, []),
    ("one-range-too-many", 1, 1001, 0, ["TooManySourceRanges"]),
    ("far-too-many-ranges", 1, 60_000, 0, ["TooManySourceRanges"]),
    ("most-rules", 100, 100, 100, []),
    ("too-many-rules", 101, 100, 0, ["TooManyRules"]),
)
def test_what_one_service_asks_for_is_bounded(
    ports: int, ranges: int, served: int, reasons: list[str]
) -> None:
    found = asked(service(ports=_ports(ports), loadBalancerSourceRanges=_ranges(ranges) or None))
    assert len(found.ports) == served
    assert [refusal.reason for refusal in found.refusals] == reasons


def test_a_long_annotation_of_ranges_is_refused_unread() -> None:
    annotations = {"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8," * 6000}
    found = asked(service(annotations=annotations))
    assert found.ports == ()
    assert only(found).reason == "TooManySourceRanges"
