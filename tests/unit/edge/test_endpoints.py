"""The listeners of a Service, and their endpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.support.cases import cases
from tests.support.lbobjects import DNS, HTTP, UID, nonsense, pods, service
from tests.support.rules import rule
from windowbox.models.loadbalancers import Endpoint, Family, Listener, LoadBalancer
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.edge import edges, endpoints
from workers.loadbalancer.edge.endpoints import ClusterNodes
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.spec.demands import Port, demand

REF = ObjectRef("runtime", "services", "default", "web")
V4: dict[Family, str] = {"IPv4": "192.0.2.1"}
DUAL: dict[Family, str] = {"IPv4": "192.0.2.1", "IPv6": "fd00::1"}
NODES = (
    Backend("node-2", {"IPv4": "10.0.0.2"}),
    Backend("node-1", {"IPv4": "10.0.0.1", "IPv6": "fd00:1::1"}),
)
BARE = Port("http", 80, "TCP", None, 8080)


def balancer(
    found: Object | None = None,
    addresses: dict[Family, str] = V4,
    nodes: tuple[Backend, ...] = NODES,
    slices: tuple[Object, ...] = (),
    direct: bool | None = None,
    *,
    checked: bool = False,
) -> LoadBalancer:
    asked = demand(found or service(), direct=bool(slices) if direct is None else direct)
    return endpoints.load_balancer(REF, asked, addresses, ClusterNodes(nodes, checked=checked), slices)


@cases(
    "uid name",
    ("LB-16-names+LB-9-names", UID, "gardener-lb-f058bf43"),
    ("LB-16-names-zeros", "00000000-0000-0000-0000-000000000000", "gardener-lb-12b9377c"),
)
def test_a_box_is_named_after_the_uid(uid: str, name: str) -> None:
    assert edges.box_name(uid) == name


def listener(found: Object | None = None, **asked: Any) -> Listener:
    """The only listener of the Service."""
    (one,) = balancer(found, **asked).listeners
    return one


BOTH = ["IPv4", "IPv6"]


@rule("LB-7-nodeport", "LB-7-cluster")
def test_traffic_goes_to_the_node_ports_of_all_nodes() -> None:
    found = balancer()
    (one,) = found.listeners
    assert (one.address, one.place, one.check) == ("192.0.2.1", "80/TCP", 10256)
    assert found.endpoints_of(one) == (
        Endpoint("10.0.0.1", 30080, "node-1"),
        Endpoint("10.0.0.2", 30080, "node-2"),
    )


@rule("LB-7-local")
def test_envoy_checks_a_health_port_of_the_service_itself() -> None:
    one = listener(service(externalTrafficPolicy="Local", healthCheckNodePort=31234), checked=True)
    assert one.check == 31234


@rule("LB-7-cluster")
def test_envoy_checks_no_node_that_the_edge_checks() -> None:
    assert listener(checked=True).check is None


@rule("LB-7-families")
def test_each_family_has_backends_of_its_own() -> None:
    found = balancer(service(ipFamilies=["IPv6", "IPv4"], ports=[HTTP, DNS]), DUAL)
    assert [(one.address, one.place, len(found.endpoints_of(one))) for one in found.listeners] == [
        ("192.0.2.1", "80/TCP", 2),
        ("192.0.2.1", "53/UDP", 2),
        ("fd00::1", "80/TCP", 1),
        ("fd00::1", "53/UDP", 1),
    ]
    assert found.endpoints_of(found.listeners[2]) == (Endpoint("fd00:1::1", 30080, "node-1"),)


@rule("LB-7-families")
def test_only_the_families_of_the_service_are_served() -> None:
    assert listener(addresses=DUAL).address == "192.0.2.1"


@rule("LB-2-empty")
def test_a_service_without_nodes_has_listeners() -> None:
    found = balancer(nodes=())
    assert [found.endpoints_of(one) for one in found.listeners] == [()]


@cases(
    "ranges allowed",
    ("LB-7-ranges-of-each", ["10.0.0.0/8", "fd00::/8"], [("10.0.0.0/8",), ("fd00::/8",)]),
    ("LB-7-ranges-none-lets-nobody-in", ["10.0.0.0/8"], [("10.0.0.0/8",), ()]),
)
def test_ranges_hold_for_their_own_family(ranges: list[str], allowed: list[tuple[str, ...]]) -> None:
    both = service(ipFamilies=BOTH, loadBalancerSourceRanges=ranges)
    assert [one.allowed for one in balancer(both, DUAL).listeners] == allowed


@rule("LB-7-ranges")
def test_an_empty_list_of_ranges_allows_no_client() -> None:
    closed = replace(demand(service(), direct=False), allowed=())
    (one,) = endpoints.load_balancer(REF, closed, V4, ClusterNodes(NODES, checked=False)).listeners
    assert one.allowed == ()


@cases(
    "allowed nodes",
    ("AWS-X5-any", None, ("10.0.0.1", "10.0.0.2")),
    ("AWS-X5-some", ("10.0.0.2/32", "10.0.9.0/24"), ("10.0.0.2",)),
    ("AWS-X5-network", ("10.0.0.0/24", "10.0.0.0/28"), ("10.0.0.1", "10.0.0.2")),
    ("AWS-X5-none", (), ()),
)
def test_nodes_outside_the_ranges_stay_outside(
    allowed: tuple[str, ...] | None, nodes: tuple[str, ...]
) -> None:
    """Envoy serves a client by the list with its longest prefix: that of the nodes."""
    asked = replace(demand(service(ports=[HTTP, DNS]), direct=False), allowed=allowed, hairpin=("IPv4",))
    tcp, udp = endpoints.load_balancer(REF, asked, V4, ClusterNodes(NODES, checked=False)).listeners
    assert (tcp.hairpin, udp.hairpin) == (nodes, None)


@rule("AWS-X1")
def test_backends_of_one_family_serve_both() -> None:
    asked = replace(demand(service(), direct=False), families=("IPv4", "IPv6"), backends="IPv4")
    found = endpoints.load_balancer(REF, asked, DUAL, ClusterNodes(NODES, checked=False))
    names = {one.address: {node.name for node in found.targets_of(one)} for one in found.listeners}
    assert names == {address: {"node-1", "node-2"} for address in DUAL.values()}
    slices = (pods("10.0.1.7"), pods("fd00:1::7", family="IPv6"))
    asked = replace(demand(service(), direct=True), families=("IPv4", "IPv6"), backends="IPv4", ports=(BARE,))
    found = endpoints.load_balancer(REF, asked, DUAL, ClusterNodes(NODES, checked=False), slices)
    assert [[pod.address for pod in one.endpoints] for one in found.listeners] == [["10.0.1.7"]] * 2


def test_options_reach_the_listeners_that_know_them() -> None:
    annotations = {
        "loadbalancer.windowbox/proxy-protocol": "v2",
        "loadbalancer.windowbox/idle-timeout": "90s",
        "loadbalancer.windowbox/connection-limit": "5",
    }
    found = balancer(service(annotations=annotations, sessionAffinity="ClientIP", ports=[HTTP, DNS]))
    tcp, udp = found.listeners
    assert (tcp.proxy_protocol, tcp.idle_timeout, tcp.max_connections, tcp.affinity) == (2, 90, 5, True)
    assert (udp.proxy_protocol, udp.idle_timeout, udp.max_connections, udp.affinity) == (None, 90, None, True)


@rule("LB-7-portless")
def test_a_port_without_node_port_leads_to_pods() -> None:
    bare = service(ports=[{"name": "http", "port": 80, "protocol": "TCP"}, DNS])
    found = balancer(bare, slices=(pods("10.1.0.2", "10.1.0.1"),))
    http, dns = found.listeners
    assert http.endpoints == (Endpoint("10.1.0.1", 8080, "web-1"), Endpoint("10.1.0.2", 8080, "web-2"))
    assert http.check is None
    assert [one.port for one in found.endpoints_of(dns)] == [30053, 30053]
    assert dns.check == 10256


def port(**other: Any) -> Object:
    """A Pod's slice whose port has these fields; None: without the field."""
    fields = {"name": "http", "port": 8080, "protocol": "TCP", **other}
    return pods("10.1.0.1", ports=[{key: value for key, value in fields.items() if value is not None}])


@cases(
    "slices addresses",
    ("ready", (pods("10.1.0.1"),), ["10.1.0.1"]),
    ("not-ready", (pods("10.1.0.1", ready=False),), []),
    ("unknown-is-ready", (pods("10.1.0.1", ready=None),), ["10.1.0.1"]),
    ("in-two-slices", (pods("10.1.0.1"), pods("10.1.0.1")), ["10.1.0.1"]),
    ("both-families", (pods("fd01::1", family="IPv6"), pods("10.1.0.1")), ["10.1.0.1", "fd01::1"]),
    ("a-name", (pods("web.example.com", family="FQDN"),), []),
    ("family-contradicts", (pods("fd01::1", family="IPv4"),), []),
    ("other-port", (port(name="other"),), []),
    ("other-protocol", (port(protocol="UDP"),), []),
    ("default", (port(protocol=None),), ["10.1.0.1"]),
    ("no-number", (port(port=None),), []),
    ("none", (), []),
)
@rule("LB-7-portless")
def test_pods_that_are_ready_serve(slices: tuple[Object, ...], addresses: list[str]) -> None:
    assert [one.address for one in endpoints.endpoints_of(slices, BARE)] == addresses


@rule("LB-7-portless")
def test_a_port_without_a_name_is_found_without_one() -> None:
    unnamed = pods("10.1.0.1", ports=[{"name": "", "port": 8080, "protocol": "TCP"}])
    absent = pods("10.1.0.2", ports=[{"port": 8080, "protocol": "TCP"}])
    found = endpoints.endpoints_of((unnamed, absent), Port("", 80, "TCP", None, 8080))
    assert [one.address for one in found] == ["10.1.0.1", "10.1.0.2"]


def slice(*conditions: dict[str, bool], family: str = "IPv4") -> Object:
    listed = [{"addresses": ["10.1.0.1"], "conditions": one} for one in conditions]
    return Object({"metadata": {"name": "web-1"}, "addressType": family, "endpoints": listed})


@cases(
    "slices vacant",
    ("no-slice-tells-anything", [], False),
    ("a-slice-without-pods", [slice()], True),
    ("a-pod-that-is-ready", [slice({"ready": True})], False),
    ("a-pod-that-is-not-ready", [slice({"ready": False, "serving": False})], True),
    ("a-pod-that-ends-but-serves", [slice({"ready": False, "serving": True})], False),
    ("a-pod-of-which-nothing-is-known", [slice({})], False),
    ("one-slice-of-two", [slice(), slice({"ready": True})], False),
    ("only-of-the-other-family", [slice(family="IPv6")], False),
)
def test_a_listener_without_serving_pods_is_vacant(slices: list[Object], vacant: bool) -> None:
    found = balancer(slices=tuple(slices), direct=False)
    (one,) = found.listeners
    assert one.vacant == vacant
    # Its nodes stay its endpoints, whatever Pods they have.
    assert [endpoint.name for endpoint in found.endpoints_of(one)] == ["node-1", "node-2"]


@rule("LB-2-idempotent")
def test_the_digest_ignores_nodes_their_checks_and_pods() -> None:
    found = [balancer(), balancer(checked=True), balancer(nodes=())]
    found += [balancer(slices=(slice(*one),), direct=False) for one in ([{"ready": True}], [])]
    assert len({one.digest for one in found}) == 1


@pytest.mark.parametrize(
    "other",
    [
        service(ports=[HTTP, DNS]),
        service(ports=[HTTP | {"port": 81}]),
        service(sessionAffinity="ClientIP"),
        service(loadBalancerSourceRanges=["10.0.0.0/8"]),
        service(externalTrafficPolicy="Local", healthCheckNodePort=31234),
        service(annotations={"loadbalancer.windowbox/idle-timeout": "90s"}),
        service(metadata={"uid": "other"}),
    ],
    ids=["ports", "port", "affinity", "ranges", "policy", "timeout", "uid"],
)
def test_the_digest_depends_on_the_demands_of_the_service(other: Object) -> None:
    assert balancer().digest != balancer(other).digest
    assert balancer().digest != balancer(addresses={"IPv4": "192.0.2.2"}).digest


@given(nonsense, nonsense)
def test_nonsense_gets_an_answer(found: Object, slices: Any) -> None:
    asked = demand(found, direct=True)
    answer = endpoints.load_balancer(REF, asked, DUAL, ClusterNodes(NODES, checked=False), (slices,))
    assert len(answer.listeners) == len(asked.ports) * len(asked.families)
    assert len({one.name for one in answer.listeners}) == len(answer.listeners)
    assert answer.digest
