"""Which nodes take traffic, and what is said if none does."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.support.lbobjects import node, nonsense
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.loadbalancer.edge import trafficnodes
from workers.loadbalancer.edge.trafficnodes import Backend, Ineligible

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
TAINT = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}


def labelled(value: object) -> Object:
    return node(labels={EXCLUDE: value})


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(node(), id="LB-16-exclude-absent"),
        *(
            pytest.param(labelled(value), id=f"LB-16-exclude+LB-5-excluded-{value}-includes")
            for value in ("false", "0", "f", "F", "False", "FALSE")
        ),
        pytest.param(node(unschedulable=True), id="LB-5-ignored-cordon"),
        pytest.param(node(providerID=""), id="LB-5-ignored-provider-id"),
        pytest.param(
            node(taints=[{"key": "node.cloudprovider.kubernetes.io/uninitialized"}]),
            id="LB-5-ignored-uninitialized",
        ),
        pytest.param(node(taints=[{"key": "node.kubernetes.io/not-ready"}]), id="LB-5-ignored-not-ready"),
        pytest.param(node(labels={"node-role.kubernetes.io/control-plane": ""}), id="LB-5-ignored-role"),
    ],
)
def test_a_node_takes_traffic(found: Object) -> None:
    assert trafficnodes.backend(found) == Backend("node-1", {"IPv4": "10.0.0.1"})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param(node(deleting=True), "is being deleted", id="LB-5-deleted"),
        *(
            pytest.param(
                labelled(value),
                f"carries the label {EXCLUDE}",
                id=f"LB-16-exclude+LB-5-excluded-{value!r}-excludes",
            )
            for value in ("", "true", "1", "no", "fALSE", " false", "oops", None, 7)
        ),
        pytest.param(node(taints=[TAINT]), "has the taint ToBeDeletedByClusterAutoscaler", id="LB-5-taint"),
        pytest.param(
            node(taints=[{"key": "x"}, TAINT | {"effect": "PreferNoSchedule"}]),
            "has the taint ToBeDeletedByClusterAutoscaler",
            id="LB-5-taint-any-effect",
        ),
        pytest.param(node("node-1", "nowhere"), "has no InternalIP", id="LB-5-addresses-unreadable"),
        pytest.param(node("node-1", "fe80::1%eth0"), "has no InternalIP", id="LB-5-addresses-scoped"),
        pytest.param(node("node-1", "::ffff:127.0.0.1"), "has no InternalIP", id="LB-5-addresses-mapped"),
        pytest.param(Object({"metadata": {"name": "node-1"}}), "has no InternalIP", id="LB-5-addresses-none"),
    ],
)
def test_a_node_takes_no_traffic(found: Object, why: str) -> None:
    assert trafficnodes.backend(found) == Ineligible("node-1", why)


@rule("LB-5-addresses")
def test_a_node_is_reached_at_its_first_internal_address_of_each_family() -> None:
    found = node("node-1", "10.0.0.1", "10.0.0.2", "FD00::00:1", "fd00::2")
    found.status["addresses"].insert(0, {"type": "ExternalIP", "address": "192.0.2.1"})
    assert trafficnodes.backend(found) == Backend("node-1", {"IPv4": "10.0.0.1", "IPv6": "fd00::1"})


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        pytest.param(
            [node("a"), node("b", "10.0.0.2")],
            [node("b", "10.0.0.2"), node("a")],
            True,
            id="LB-16-nodes-order",
        ),
        pytest.param(
            [node("b")],
            [node("b", taints=[{"key": "node.kubernetes.io/not-ready"}])],
            True,
            id="LB-16-nodes-not-ready",
        ),
        pytest.param([node("a")], [node("a", "10.0.0.9")], False, id="LB-16-nodes+LB-5-triggers-address"),
        pytest.param([node("a")], [node("a", taints=[TAINT])], False, id="LB-16-nodes+LB-5-triggers-taint"),
        pytest.param([node("a")], [node("a", deleting=True)], False, id="LB-16-nodes+LB-5-triggers-deletion"),
        pytest.param([node("a")], [node("a", providerID="x")], True, id="LB-16-nodes-provider-id"),
    ],
)
def test_node_sets_are_compared_by_where_traffic_goes(
    before: list[Object], after: list[Object], same: bool
) -> None:
    first, then = ({trafficnodes.backend(found) for found in found_} for found_ in (before, after))
    assert (first == then) is same


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param([], "the cluster has no nodes", id="LB-5-said-none"),
        pytest.param(
            [labelled("")] * 3,
            f"all 3 nodes carry the label {EXCLUDE}: remove the label (kubectl label node NAME {EXCLUDE}-) "
            "from a node that shall take traffic",
            id="LB-5-said-label",
        ),
        pytest.param(
            [node(deleting=True)], "the only node is being deleted: wait for new nodes", id="LB-5-said-one"
        ),
        pytest.param(
            [node(taints=[TAINT]), labelled("true"), node(taints=[TAINT])],
            "of 3 nodes, 2 have the taint ToBeDeletedByClusterAutoscaler and 1 carries the label "
            f"{EXCLUDE}: wait for new nodes, or remove the taint if the autoscaler has given up",
            id="LB-5-said-several",
        ),
        pytest.param(
            [node("a", "x"), node("b", "x")],
            "all 2 nodes have no InternalIP: wait for the kubelet to report one, or look at its option "
            "--node-ip",
            id="LB-5-said-address",
        ),
    ],
)
def test_that_no_node_takes_traffic_is_explained(found: list[Object], said: str) -> None:
    assert trafficnodes.no_backends([trafficnodes.backend(one) for one in found]) == said


@given(nonsense)
def test_nonsense_gets_an_answer(found: Object) -> None:
    assert trafficnodes.no_backends([trafficnodes.backend(found)])
