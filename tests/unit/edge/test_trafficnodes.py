"""Nodes that take traffic, and the explanation if there are none."""

from __future__ import annotations

from hypothesis import given

from tests.support.cases import cases
from tests.support.lbobjects import node, nonsense
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.loadbalancer.edge import trafficnodes
from workers.loadbalancer.edge.trafficnodes import Backend, Ineligible

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
TAINT = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}


def labelled(value: object) -> Object:
    return node(labels={EXCLUDE: value})


@cases(
    "found",
    ("LB-16-exclude-absent", node()),
    *(
        (f"LB-16-exclude+LB-5-excluded-{value}-includes", labelled(value))
        for value in ("false", "0", "f", "F", "False", "FALSE")
    ),
    ("LB-5-ignored-cordon", node(unschedulable=True)),
    ("LB-5-ignored-provider-id", node(providerID="")),
    ("LB-5-ignored-uninitialized", node(taints=[{"key": "node.cloudprovider.kubernetes.io/uninitialized"}])),
    ("LB-5-ignored-not-ready", node(taints=[{"key": "node.kubernetes.io/not-ready"}])),
    ("LB-5-ignored-role", node(labels={"node-role.kubernetes.io/control-plane": ""})),
)
def test_a_node_takes_traffic(found: Object) -> None:
    assert trafficnodes.backend(found) == Backend("node-1", {"IPv4": "10.0.0.1"})


@cases(
    "found why",
    ("LB-5-deleted", node(deleting=True), "is being deleted"),
    *(
        (f"LB-16-exclude+LB-5-excluded-{value!r}-excludes", labelled(value), f"carries the label {EXCLUDE}")
        for value in ("", "true", "1", "no", "fALSE", " false", "oops", None, 7)
    ),
    ("LB-5-taint", node(taints=[TAINT]), "has the taint ToBeDeletedByClusterAutoscaler"),
    (
        "LB-5-taint-any-effect",
        node(taints=[{"key": "x"}, TAINT | {"effect": "PreferNoSchedule"}]),
        "has the taint ToBeDeletedByClusterAutoscaler",
    ),
    ("LB-5-addresses-unreadable", node("node-1", "nowhere"), "has no InternalIP"),
    ("LB-5-addresses-scoped", node("node-1", "fe80::1%eth0"), "has no InternalIP"),
    ("LB-5-addresses-mapped", node("node-1", "::ffff:127.0.0.1"), "has no InternalIP"),
    ("LB-5-addresses-none", Object({"metadata": {"name": "node-1"}}), "has no InternalIP"),
)
def test_a_node_takes_no_traffic(found: Object, why: str) -> None:
    assert trafficnodes.backend(found) == Ineligible("node-1", why)


@rule("LB-5-addresses")
def test_a_node_is_reached_at_its_first_internal_address_of_each_family() -> None:
    found = node("node-1", "10.0.0.1", "10.0.0.2", "FD00::00:1", "fd00::2")
    found.status["addresses"].insert(0, {"type": "ExternalIP", "address": "192.0.2.1"})
    assert trafficnodes.backend(found) == Backend("node-1", {"IPv4": "10.0.0.1", "IPv6": "fd00::1"})


@cases(
    "before after same",
    ("LB-16-nodes-order", [node("a"), node("b", "10.0.0.2")], [node("b", "10.0.0.2"), node("a")], True),
    (
        "LB-16-nodes-not-ready",
        [node("b")],
        [node("b", taints=[{"key": "node.kubernetes.io/not-ready"}])],
        True,
    ),
    ("LB-16-nodes+LB-5-triggers-address", [node("a")], [node("a", "10.0.0.9")], False),
    ("LB-16-nodes+LB-5-triggers-taint", [node("a")], [node("a", taints=[TAINT])], False),
    ("LB-16-nodes+LB-5-triggers-deletion", [node("a")], [node("a", deleting=True)], False),
    ("LB-16-nodes-provider-id", [node("a")], [node("a", providerID="x")], True),
)
def test_node_sets_are_compared_by_where_traffic_goes(
    before: list[Object], after: list[Object], same: bool
) -> None:
    first, then = ({trafficnodes.backend(found) for found in found_} for found_ in (before, after))
    assert (first == then) is same


@cases(
    "found said",
    ("LB-5-said-none", [], "the cluster has no nodes"),
    (
        "LB-5-said-label",
        [labelled("")] * 3,
        f"all 3 nodes carry the label {EXCLUDE}: remove the label (kubectl label node NAME {EXCLUDE}-) "
        "from a node that shall take traffic",
    ),
    ("LB-5-said-one", [node(deleting=True)], "the only node is being deleted: wait for new nodes"),
    (
        "LB-5-said-several",
        [node(taints=[TAINT]), labelled("true"), node(taints=[TAINT])],
        "of 3 nodes, 2 have the taint ToBeDeletedByClusterAutoscaler and 1 carries the label "
        f"{EXCLUDE}: wait for new nodes, or remove the taint if the autoscaler has given up",
    ),
    (
        "LB-5-said-address",
        [node("a", "x"), node("b", "x")],
        "all 2 nodes have no InternalIP: wait for the kubelet to report one, or look at its option --node-ip",
    ),
)
def test_that_no_node_takes_traffic_is_explained(found: list[Object], said: str) -> None:
    assert trafficnodes.no_backends([trafficnodes.backend(one) for one in found]) == said


@given(nonsense)
def test_nonsense_gets_an_answer(found: Object) -> None:
    assert trafficnodes.no_backends([trafficnodes.backend(found)])
