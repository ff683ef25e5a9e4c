"""Where a simulated node listens: the cases of kube-proxy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sandbox.simulated import openports
from sandbox.simulated.openports import (
    Behaviour,
    Drop,
    Echo,
    Endpoint,
    Key,
    Node,
    NodeHealth,
    OpenPort,
    Place,
    Port,
    Service,
    ServiceHealth,
    Slice,
)
from tests.support.cases import cases
from windowbox.models.objects import Object

WEB = Key("default", "web")
HTTP = Port("http", "TCP", 30080)
ONE, TWO = Node("one", "127.77.0.1"), Node("two", "127.77.0.2")
CLUSTER = Service(WEB, (HTTP,))
LOCAL = Service(WEB, (HTTP,), local=True, health_port=31234)
AT_ONE, AT_TWO = Place("127.77.0.1", 30080), Place("127.77.0.2", 30080)
READY = Endpoint("one", ready=True, serving=True)
ENDING = Endpoint("one", ready=False, serving=True)
GONE = Endpoint("one", ready=False, serving=False)


def slice_of(*endpoints: Endpoint, port: tuple[str, str] = ("http", "TCP")) -> Slice:
    return Slice(WEB, frozenset([port]), endpoints)


@cases(
    "service part expected",
    ("everywhere", CLUSTER, slice_of(READY), {AT_ONE: Echo("one"), AT_TWO: Echo("two")}),
    ("no-endpoint-refuses", CLUSTER, slice_of(), {}),
    ("no-ready-endpoint-refuses", CLUSTER, slice_of(GONE), {}),
    ("ending", CLUSTER, slice_of(ENDING), {AT_ONE: Echo("one"), AT_TWO: Echo("two")}),
    ("endpoints-of-another-port", CLUSTER, slice_of(READY, port=("other", "TCP")), {}),
    ("endpoints-of-another-protocol", CLUSTER, slice_of(READY, port=("http", "UDP")), {}),
)
def test_open_ports_of_a_service(service: Service, part: Slice, expected: dict[Place, OpenPort]) -> None:
    assert openports.of_service(service, [part], [ONE, TWO]) == expected


@cases(
    "part one two counts",
    ("elsewhere-drops", slice_of(READY), Echo("one"), Drop("two"), (1, 0)),
    ("ending-is-not-counted", slice_of(ENDING), Echo("one"), Drop("two"), (0, 0)),
    ("two-on-one-node", slice_of(READY, READY), Echo("one"), Drop("two"), (2, 0)),
    ("nowhere-refuses", slice_of(), None, None, (0, 0)),
)
def test_local_services_open_ports_locally(
    part: Slice, one: OpenPort | None, two: OpenPort | None, counts: tuple[int, int]
) -> None:
    found = openports.of_service(LOCAL, [part], [ONE, TWO])
    assert (found.get(AT_ONE), found.get(AT_TWO)) == (one, two)
    assert found[Place("127.77.0.1", 31234)] == ServiceHealth("one", "default", "web", counts[0])
    assert found[Place("127.77.0.2", 31234)] == ServiceHealth("two", "default", "web", counts[1])


@cases(
    "behaviour expected",
    ("serve", "serve", {AT_ONE: Echo("one")}),
    ("hang-accepts", "hang", {AT_ONE: Echo("one")}),
    ("refuse", "refuse", {}),
    ("drop", "drop", {AT_ONE: Drop("one")}),
)
def test_a_node_behaves_as_annotated(behaviour: Behaviour, expected: dict[Place, OpenPort]) -> None:
    node = replace(ONE, behaviour=behaviour)
    assert openports.of_service(CLUSTER, [slice_of(READY)], [node]) == expected


def raw_node(taints: tuple[str, ...] = (), **metadata: Any) -> Object:
    simulated = {"labels": {"kwok.x-k8s.io/node": "fake"}}
    return Object(
        {
            "metadata": {"name": "one", **simulated, **metadata},
            "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
            "status": {"addresses": [{"type": "InternalIP", "address": "127.77.0.1"}]},
        }
    )


@cases(
    "found eligible",
    ("healthy", raw_node(), True),
    ("about-to-go", raw_node(("ToBeDeletedByClusterAutoscaler",)), False),
    ("another-taint", raw_node(("node.kubernetes.io/not-ready",)), True),
    ("going", raw_node(deletionTimestamp="2026-01-01T00:00:00Z"), False),
)
def test_a_leaving_node_takes_no_new_connections(found: Object, eligible: bool) -> None:
    node = openports.node(found)
    assert node is not None
    assert openports.of_node(node) == {Place("127.77.0.1", 10256): NodeHealth("one", eligible)}


@cases(
    "found",
    ("not-simulated", raw_node(labels={})),
    ("no-address", Object({**raw_node().raw, "status": {}})),
    (
        "not-of-this-machine",
        Object({**raw_node().raw, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}),
    ),
)
def test_other_nodes_are_left_alone(found: Object) -> None:
    assert openports.node(found) is None


def test_an_unknown_behaviour_is_ignored() -> None:
    node = openports.node(raw_node(annotations={"simulator.windowbox/behaviour": "sing"}))
    assert node is not None
    assert node.behaviour == "serve"


def raw_service(**spec: Any) -> Object:
    ports = [{"name": "http", "port": 80, "nodePort": 30080}]
    return Object({"metadata": {"namespace": "default", "name": "web"}, "spec": {"ports": ports, **spec}})


@cases(
    "found expected",
    ("cluster", raw_service(), CLUSTER),
    ("l", raw_service(externalTrafficPolicy="Local", healthCheckNodePort=31234), LOCAL),
    ("health-port-of-another-time", raw_service(healthCheckNodePort=31234), CLUSTER),
    ("no-node-port", raw_service(ports=[{"port": 80}]), None),
    ("ipv6-only", raw_service(ipFamilies=["IPv6"]), None),
    ("both-families", raw_service(ipFamilies=["IPv6", "IPv4"]), CLUSTER),
)
def test_services_are_parsed(found: Object, expected: Service | None) -> None:
    assert openports.service(found) == expected


def test_endpoints_without_conditions_are_ready() -> None:
    raw = {
        "metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http"}],
        "endpoints": [{"nodeName": "one"}, {"nodeName": "one", "conditions": {"ready": False}}],
    }
    assert openports.endpoint_slice(Object(raw)) == slice_of(READY, GONE)
    assert openports.endpoint_slice(Object({**raw, "addressType": "IPv6"})) is None
