"""The networks of a Shoot, invalid ones, and the traffic that machines accept from load balancers."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from workers.core.lifecycle.shootfacts import MOST_NETWORKS, ShootFacts, facts
from workers.kinds.infrastructure import infrastructureobjects
from workers.kinds.infrastructure.infrastructureobjects import networks

BOTH = ("IPv4", "IPv6")
V4, V6 = "10.0.0.0/16", "fd00:10:1:100::/56"


@cases(
    "families, nodes, machines",
    {
        "I-1-IPv4": (("IPv4",), (V4,), {"IPv4": V4}),
        "I-1-IPv6": (("IPv6",), (V6,), {"IPv6": V6}),
        "B.7-both": (BOTH, (V4, V6), {"IPv4": V4, "IPv6": V6}),
        "B.7-in-another-order": (BOTH, (V6, V4), {"IPv4": V4, "IPv6": V6}),
        "B.7-one-is-not-known-yet": (BOTH, (V4,), {"IPv4": V4}),
        "B.7-a-family-that-is-not-asked-for": (("IPv4",), (V4, V6), {"IPv4": V4}),
    },
)
def test_each_family_has_the_first_range_that_fits(
    families: tuple[str, ...], nodes: tuple[str, ...], machines: dict[str, str]
) -> None:
    found = networks(ShootFacts(ip_families=families, nodes=nodes))
    assert found.machines == {family: ip_network(cidr) for family, cidr in machines.items()}


@cases(
    "shoot, complaint",
    {
        "I-3-none": ({}, "nodes of the Shoot is not set"),
        "I-3-host-bits": ({"nodes": ("10.0.0.7/16",)}, "has host bits set"),
        "I-3-host-bits-IPv6": ({"nodes": ("fd00::1/64",)}, "has host bits set"),
        "I-3-too-long": ({"nodes": ("10.0.0.0/33",)}, "10.0.0.0/33"),
        "I-3-no-cidr": ({"nodes": ("ten",)}, "'ten' does not"),
        "I-3-no-length": ({"nodes": ("10.0.0.0",)}, "'10.0.0.0' does not"),
        "I-3-mask": ({"nodes": ("10.0.0.0/255.255.0.0",)}, "255.0.0' does not"),
        "I-3-zero-before": ({"nodes": ("10.0.0.0/016",)}, "/016' does not"),
        "I-3-zone": ({"nodes": ("fe80::%eth0/64",)}, "eth0/64' does not"),
        "I-3-IPv4-in-IPv6": (
            {"nodes": ("::ffff:10.0.0.0/112",), "ip_families": ("IPv6",)},
            "'::ffff:10.0.0.0/112' does not",
        ),
        "I-3-without-end": ({"nodes": ("1" * 9999,)}, f"'{'1' * 59} does not"),
        "I-3-overlap": (
            {"nodes": (V4,), "pods": ("10.0.3.0/24",)},
            "nodes 10.0.0.0/16 and pods 10.0.3.0/24 overlap",
        ),
        "I-3-overlap-IPv6": (
            {"nodes": (V4,), "pods": ("fd00::/48",), "services": ("fd00::/108",)},
            "pods fd00::/48 and services fd00::/108 overlap; give each its own range",
        ),
        "I-3-family": ({"nodes": (V4,), "ip_families": ("ipv4",)}, "'ipv4' is neither IPv4 nor IPv6"),
        "B.7-no-match": ({"nodes": (V6,), "ip_families": ("IPv4",)}, "is not of its ipFamilies"),
    },
)
def test_bad_networks_are_named_with_field_and_value(shoot: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=r"^spec\.networking.* of the Shoot") as caught:
        networks(ShootFacts(**shoot))
    assert complaint in str(caught.value)
    assert caught.value.codes == ("ERR_CONFIGURATION_PROBLEM",)


def test_many_networks_are_refused_before_they_are_compared() -> None:
    shoot = {"status": {"networking": {"nodes": [f"10.{n >> 8}.{n & 255}.0/24" for n in range(50_000)]}}}
    found = facts(Object({"spec": {"shoot": shoot}}))
    assert len(found.nodes) == MOST_NETWORKS + 1
    with pytest.raises(Malformed, match=r"^spec\.networking\.nodes .* more than 32 CIDRs; remove some"):
        networks(found)


@rule("I-1")
def test_a_range_that_spec_and_status_spell_differently_is_one() -> None:
    found = networks(ShootFacts(ip_families=("IPv6",), nodes=("FD00:10:1:100::/56", V6)))
    assert infrastructureobjects.status(found) == {
        "networking": {"nodes": [V6], "pods": None, "services": None},
        "egressCIDRs": [V6],
    }


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("shoot-machine-pods-shoot--a--b-ipv4", "shoot--a--b"),
        ("shoot-machine-pods-shoot--a--b-ipv6", "shoot--a--b"),
        ("shoot-machine-pods-shoot--a--b", ""),
        ("default-ipv4-ippool", ""),
    ],
)
def test_the_name_of_a_pool_names_its_shoot(name: str, id_: str) -> None:
    assert infrastructureobjects.technical_id(name) == id_


OLD = {"status": {"networking": {"nodes": [V4]}}}


@cases(
    "role, infrastructure, ours",
    {
        "labelled": ("infra", {}, True),
        "of-somebody-else": ("shoot", {}, False),
        "label-taken-off-after-success": ("shoot", OLD, True),
    },
)
def test_a_namespace_is_ours_by_its_label(role: str, infrastructure: dict[str, Any], ours: bool) -> None:
    namespace = Object({"metadata": {"name": "infra-a", "labels": {"gardener.cloud/role": role}}})
    assert infrastructureobjects.is_ours(namespace, Object(infrastructure)) is ours


def secret_of(**reference: str) -> tuple[str, str]:
    found = {"metadata": {"namespace": "a"}, "spec": {"secretRef": reference}}
    return infrastructureobjects.provider_secret(Object(found))


def test_the_secret_defaults_to_the_infrastructure_namespace() -> None:
    assert secret_of(name="s") == ("a", "s")
    assert secret_of(name="s", namespace="b") == ("b", "s")


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize("value", ["a/b", "..", "a b"])
def test_an_impossible_reference_is_named_by_field(field: str, value: str) -> None:
    with pytest.raises(Malformed) as refused:
        secret_of(**{"name": "s", "namespace": "a", field: value})
    assert str(refused.value).startswith(f"spec.secretRef.{field} is {value!r}: give the {field} of")


def test_a_secret_without_a_name_is_reported() -> None:
    with pytest.raises(Malformed, match=r"^spec\.secretRef\.name is not set: name the Secret"):
        secret_of()


def test_reported_provider_configs_are_cut_to_status_size() -> None:
    config = {f"{number:03}": "x" * 100_000 for number in range(100)}
    with pytest.raises(Malformed, match=r"there are 000: 'xxx.*; remove") as caught:
        infrastructureobjects.check_provider_config(Object({"spec": {"providerConfig": config}}))
    assert len(str(caught.value)) < 1000


@rule("LB-10-routes", "LB-11-11")
def test_machines_accept_only_the_edge_at_node_ports() -> None:
    sources = tuple(ip_network(one) for one in ("172.18.0.0/24", "fd00:10::/64", "172.18.255.9/32"))
    policy = infrastructureobjects.allow_balancers("infra-a", sources)
    assert policy["metadata"]["namespace"] == "infra-a"
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "machine"}}
    assert policy["spec"]["ingress"] == [
        {
            "from": [{"ipBlock": {"cidr": str(source)}} for source in sources],
            "ports": [
                {"protocol": "TCP", "port": 30000, "endPort": 32767},
                {"protocol": "UDP", "port": 30000, "endPort": 32767},
                {"protocol": "TCP", "port": 10256},
            ],
        }
    ]


def test_without_sources_nobody_is_let_in() -> None:
    assert infrastructureobjects.allow_balancers("infra-a", ())["spec"]["ingress"] == []
