"""How addresses are divided among sandboxes, nodes and Pods."""

from __future__ import annotations

import itertools
from ipaddress import IPv4Network, ip_network

import pytest

from sandbox.nodes import addresses
from sandbox.nodes.addresses import Plan
from sandbox.options import Options
from sandbox.servers import ranges
from tests.support.cases import cases
from windowbox.errors import Malformed
from windowbox.models.addresses import Network

PLAN = Plan(*next(addresses.parts(Options().ranges)), addresses.names(16))


def test_ranges_of_nodes_load_balancers_and_pods_do_not_overlap() -> None:
    given: list[Network] = [PLAN.nodes_v4, PLAN.balancers_v4, PLAN.nodes_v6]
    for node in PLAN.nodes:
        assert node.v4 in PLAN.nodes_v4
        assert node.v6 in PLAN.nodes_v6
        given += [node.pods_v4, node.pods_v6]
    for one, other in itertools.combinations(given, 2):
        assert ranges.overlapping(one, [other]) == []


def test_pod_ranges_lie_in_the_cluster_range() -> None:
    assert all(node.pods_v4.subnet_of(PLAN.pods_v4) for node in PLAN.nodes)
    assert all(node.pods_v6.subnet_of(PLAN.pods_v6) for node in PLAN.nodes)
    assert PLAN.host_v4 not in PLAN.pods_v4


def test_many_sandboxes_have_room() -> None:
    assert len(list(addresses.parts(Options().ranges))) == 32


@cases(
    "ranges",
    ("too-small", ("198.18.0.0/21", "fd00::/48")),
    ("not-a-network", ("198.18.0.1/15", "fd00::/48")),
    ("the-wrong-way-round", ("fd00::/48", "198.18.0.0/15")),
)
def test_unusable_ranges_are_refused(ranges: tuple[str, str]) -> None:
    with pytest.raises(Malformed):
        list(addresses.parts(ranges))


def test_too_many_nodes_are_refused() -> None:
    with pytest.raises(Malformed, match="17 real nodes"):
        addresses.names(17)


@cases(
    "route overlaps",
    ("a-part", "198.18.0.0/24", True),
    ("more-than-all", "198.0.0.0/8", True),
    ("beside-it", "198.19.0.0/24", False),
    ("default-route", "0.0.0.0/0", False),
    ("other-family", "::/0", False),
)
def test_overlapping_routes_are_found(route: str, overlaps: bool) -> None:
    assert bool(ranges.overlapping(IPv4Network("198.18.0.0/16"), [ip_network(route)])) == overlaps
