"""What machine Pods accept from load balancers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.rules import rule
from tests.servers import ControlPlane
from windowbox.clients import kube
from windowbox.errors import Missing
from windowbox.models.refs import Resource
from workers.loadbalancer import policies

SOURCES = ("172.18.0.0/24", "fd00:10::/64", "172.18.255.9")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")


@rule("LB-11-11")
def test_node_ports_are_open_for_both_protocols_and_health_for_tcp() -> None:
    [rule_] = policies.machine_policy("infra-a", SOURCES)["spec"]["ingress"]
    assert rule_["ports"] == [
        {"protocol": "TCP", "port": 30000, "endPort": 32767},
        {"protocol": "UDP", "port": 30000, "endPort": 32767},
        {"protocol": "TCP", "port": 10256},
    ]


@rule("LB-10-routes")
def test_machines_accept_only_from_the_edge() -> None:
    policy = policies.machine_policy("infra-a", SOURCES)
    [rule_] = policy["spec"]["ingress"]
    assert rule_["from"] == [
        {"ipBlock": {"cidr": cidr}} for cidr in ("172.18.0.0/24", "172.18.255.9/32", "fd00:10::/64")
    ]
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "machine"}}
    assert policy["metadata"]["namespace"] == "infra-a"


def test_the_order_in_which_sources_are_given_changes_nothing() -> None:
    reverse = policies.machine_policy("infra-a", reversed(SOURCES))
    assert reverse == policies.machine_policy("infra-a", SOURCES)


def test_without_sources_nobody_is_let_in() -> None:
    assert policies.machine_policy("infra-a", ())["spec"]["ingress"] == []


def test_a_source_that_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        policies.machine_policy("infra-a", ["nonsense"])


async def test_the_api_server_takes_it_as_it_is(control_plane: ControlPlane) -> None:
    policy = policies.machine_policy("default", SOURCES)
    async with kube.from_file(control_plane.kubeconfig) as opened:
        with contextlib.suppress(Missing):
            await opened.delete(NETWORK_POLICIES, "default", policies.NAME)
        made = await opened.create(NETWORK_POLICIES, "default", policy)
        wanted: dict[str, Any] = policy["spec"]
        assert made.spec == wanted
        await opened.delete(NETWORK_POLICIES, "default", policies.NAME)
