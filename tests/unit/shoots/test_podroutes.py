"""Routes to Pods of a Shoot lead through the node of the sandbox that its machine is on."""

from __future__ import annotations

import logging
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from sandbox.shoots.hostagent import Machine, NodeConfig, machine, routable, wanted

NODES = [
    NodeConfig("wb0-node-1", "198.18.0.11", "198.18.8.0/25", ""),
    NodeConfig("wb0-node-2", "198.18.0.12", "198.18.8.128/25", ""),
]
SERVICES = "240.0.0.0/16"
ONE = Machine(ip_address("198.18.8.130"), ip_network("240.1.0.0/24"))
OTHER = Machine(ip_address("198.18.8.5"), ip_network("240.1.1.0/24"))


def test_each_place_has_its_next_hop() -> None:
    assert wanted([ONE], NODES, SERVICES) == {
        "": {"240.1.0.0/24": "198.18.0.12", SERVICES: "198.18.0.12"},
        "wb0-node-1": {"240.1.0.0/24": "198.18.0.12"},
        "wb0-node-2": {"240.1.0.0/24": "198.18.8.130", SERVICES: "198.18.8.130"},
    }


def test_one_machine_serves_the_services() -> None:
    found = wanted([ONE, OTHER], NODES, SERVICES)
    assert found[""][SERVICES] == "198.18.0.11"
    assert found["wb0-node-1"][SERVICES] == "198.18.8.5"
    assert SERVICES not in found["wb0-node-2"]


def test_nodes_outside_the_sandbox_get_no_route() -> None:
    foreign = Machine(ip_address("192.0.2.1"), ip_network("240.1.2.0/24"))
    for machines in ([], [foreign]):
        assert wanted(machines, NODES, SERVICES) == {"": {}, "wb0-node-1": {}, "wb0-node-2": {}}


def node(address: str, pods: Any = "240.1.0.0/24") -> dict[str, Any]:
    listed = [{"type": "Hostname", "address": "a.b"}, {"type": "InternalIP", "address": address}]
    return {"spec": {"podCIDR": pods}, "status": {"addresses": listed}}


def test_a_node_is_a_machine_with_its_range() -> None:
    assert machine(node("198.18.8.130")) == ONE


@pytest.mark.parametrize(
    "found",
    [
        {},
        *(node(address) for address in ("", "a.b", "::ffff:198.18.8.130", "fd00::1")),
        *(node("198.18.8.130", pods) for pods in (None, "", "240.1.0.0", "x/24")),
    ],
)
def test_an_unreadable_node_is_ignored(found: dict[str, Any]) -> None:
    assert machine(found) is None


@pytest.mark.parametrize(
    "pods", ["0.0.0.0/0", "10.0.0.0/8", "240.0.0.0/15", "240.1.0.0", "240.1.0.0/33", "fd00::/64", "x"]
)
def test_a_node_with_pods_outside_the_range_of_the_shoot_is_logged_once_and_skipped(
    pods: str, caplog: pytest.LogCaptureFixture
) -> None:
    inside, refused = ip_network("240.1.0.0/16"), dict[str, str]()
    nodes = {
        "good": node("198.18.8.130"),
        "evil": node("198.18.8.131", pods),
        "new": node("198.18.8.132", ""),
    }
    with caplog.at_level(logging.WARNING):
        assert [routable(nodes, inside, refused) for _ in range(3)] == [[ONE]] * 3
    assert [record.args for record in caplog.records] == [("evil", pods, inside)]
    nodes["evil"] = node("198.18.8.131", "240.1.1.0/24")
    assert len(routable(nodes, inside, refused)) == 2
    assert not refused
