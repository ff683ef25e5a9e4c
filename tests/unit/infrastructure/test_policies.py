"""What machine Pods accept from load balancers."""

from __future__ import annotations

from ipaddress import ip_network

from tests.support.rules import rule
from workers.kinds.infrastructure import infrastructureobjects

SOURCES = tuple(ip_network(one) for one in ("172.18.0.0/24", "fd00:10::/64", "172.18.255.9/32"))


@rule("LB-11-11")
def test_node_ports_are_open_for_both_protocols_and_health_for_tcp() -> None:
    [rule_] = infrastructureobjects.allow_balancers("infra-a", SOURCES)["spec"]["ingress"]
    assert rule_["ports"] == [
        {"protocol": "TCP", "port": 30000, "endPort": 32767},
        {"protocol": "UDP", "port": 30000, "endPort": 32767},
        {"protocol": "TCP", "port": 10256},
    ]


@rule("LB-10-routes")
def test_machines_accept_only_from_the_edge() -> None:
    policy = infrastructureobjects.allow_balancers("infra-a", SOURCES)
    [rule_] = policy["spec"]["ingress"]
    assert rule_["from"] == [{"ipBlock": {"cidr": str(source)}} for source in SOURCES]
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "machine"}}
    assert policy["metadata"]["namespace"] == "infra-a"


def test_without_sources_nobody_is_let_in() -> None:
    assert infrastructureobjects.allow_balancers("infra-a", ())["spec"]["ingress"] == []
