"""The networks of a Shoot, and what is wrong with some."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.kinds.infrastructure import infrastructureobjects
from workers.kinds.infrastructure.infrastructureobjects import networks

BOTH = ("IPv4", "IPv6")
V4, V6 = "10.0.0.0/16", "fd00:10:1:100::/56"


@pytest.mark.parametrize(
    ("families", "nodes", "machines"),
    [
        pytest.param(("IPv4",), (V4,), {"IPv4": V4}, id="I-1-IPv4"),
        pytest.param(("IPv6",), (V6,), {"IPv6": V6}, id="I-1-IPv6"),
        pytest.param(BOTH, (V4, V6), {"IPv4": V4, "IPv6": V6}, id="B.7-both"),
        pytest.param(BOTH, (V6, V4), {"IPv4": V4, "IPv6": V6}, id="B.7-in-another-order"),
        pytest.param(BOTH, (V4,), {"IPv4": V4}, id="B.7-one-is-not-known-yet"),
        pytest.param(("IPv4",), (V4, V6), {"IPv4": V4}, id="B.7-a-family-that-is-not-asked-for"),
    ],
)
def test_each_family_has_the_first_range_that_fits(
    families: tuple[str, ...], nodes: tuple[str, ...], machines: dict[str, str]
) -> None:
    found = networks(ShootFacts(ip_families=families, nodes=nodes))
    assert found.machines == {family: ip_network(cidr) for family, cidr in machines.items()}


@pytest.mark.parametrize(
    ("shoot", "complaint"),
    [
        pytest.param(ShootFacts(), "nodes of the Shoot is not set", id="I-3-none"),
        pytest.param(ShootFacts(nodes=("10.0.0.7/16",)), "has host bits set", id="I-3-host-bits"),
        pytest.param(ShootFacts(nodes=("fd00::1/64",)), "has host bits set", id="I-3-host-bits-IPv6"),
        pytest.param(ShootFacts(nodes=("10.0.0.0/33",)), "10.0.0.0/33", id="I-3-too-long"),
        pytest.param(ShootFacts(nodes=("ten",)), "'ten' does not", id="I-3-no-cidr"),
        pytest.param(ShootFacts(nodes=("10.0.0.0",)), "'10.0.0.0' does not", id="I-3-no-length"),
        pytest.param(ShootFacts(nodes=("10.0.0.0/255.255.0.0",)), "255.0.0' does not", id="I-3-mask"),
        pytest.param(ShootFacts(nodes=("10.0.0.0/016",)), "/016' does not", id="I-3-zero-before"),
        pytest.param(ShootFacts(nodes=("fe80::%eth0/64",)), "eth0/64' does not", id="I-3-zone"),
        pytest.param(
            ShootFacts(nodes=("::ffff:10.0.0.0/112",), ip_families=("IPv6",)),
            "'::ffff:10.0.0.0/112' does not",
            id="I-3-IPv4-in-IPv6",
        ),
        pytest.param(ShootFacts(nodes=("1" * 9999,)), f"'{'1' * 59} does not", id="I-3-without-end"),
        pytest.param(
            ShootFacts(nodes=(V4,), pods=("10.0.3.0/24",)),
            "nodes 10.0.0.0/16 and pods 10.0.3.0/24 overlap",
            id="I-3-overlap",
        ),
        pytest.param(
            ShootFacts(nodes=(V4,), pods=("fd00::/48",), services=("fd00::/108",)),
            "pods fd00::/48 and services fd00::/108 overlap",
            id="I-3-overlap-IPv6",
        ),
        pytest.param(
            ShootFacts(nodes=(V4,), ip_families=("ipv4",)), "'ipv4' is neither IPv4", id="I-3-family"
        ),
        pytest.param(
            ShootFacts(nodes=(V6,), ip_families=("IPv4",)), "is not of its ipFamilies", id="B.7-no-match"
        ),
    ],
)
def test_bad_networks_are_told_with_field_and_value(shoot: ShootFacts, complaint: str) -> None:
    with pytest.raises(Malformed, match=r"^spec\.networking.* of the Shoot") as caught:
        networks(shoot)
    assert complaint in str(caught.value)
    assert caught.value.codes == ("ERR_CONFIGURATION_PROBLEM",)


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
def test_pools_tell_whose_they_are(name: str, id_: str) -> None:
    assert infrastructureobjects.technical_id(name) == id_


LABELLED = Object({"metadata": {"name": "infra-a", "labels": {"gardener.cloud/role": "infra"}}})
BARE = Object({"metadata": {"name": "infra-a", "labels": {"gardener.cloud/role": "shoot"}}})
NEW, OLD = Object({}), Object({"status": {"networking": {"nodes": [V4]}}})


@pytest.mark.parametrize(
    ("namespace", "infrastructure", "ours"),
    [
        pytest.param(LABELLED, NEW, True, id="labelled"),
        pytest.param(BARE, NEW, False, id="of-somebody-else"),
        pytest.param(BARE, OLD, True, id="label-taken-off-after-success"),
    ],
)
def test_whose_a_namespace_is(namespace: Object, infrastructure: Object, ours: bool) -> None:
    assert infrastructureobjects.is_ours(namespace, infrastructure) is ours


def test_the_secret_defaults_to_the_infrastructure_namespace() -> None:
    here = Object({"metadata": {"namespace": "a"}, "spec": {"secretRef": {"name": "s"}}})
    there = Object({"metadata": {"namespace": "a"}, "spec": {"secretRef": {"name": "s", "namespace": "b"}}})
    assert infrastructureobjects.provider_secret(here) == ("a", "s")
    assert infrastructureobjects.provider_secret(there) == ("b", "s")


def test_reported_provider_configs_are_cut_to_status_size() -> None:
    config = {f"{number:03}": "x" * 100_000 for number in range(100)}
    with pytest.raises(Malformed, match=r"there are 000: 'xxx.*; remove") as caught:
        infrastructureobjects.check_provider_config(Object({"spec": {"providerConfig": config}}))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize("value", ["a/b", "..", "a b"])
def test_a_reference_that_cannot_be_is_told_by_field(field: str, value: str) -> None:
    secret = {"name": "s", "namespace": "a", field: value}
    with pytest.raises(Malformed) as refused:
        infrastructureobjects.provider_secret(Object({"spec": {"secretRef": secret}}))
    assert str(refused.value).startswith(f"spec.secretRef.{field} is {value!r}: give the {field} of")


def test_a_secret_without_a_name_is_told() -> None:
    with pytest.raises(Malformed, match=r"^spec\.secretRef\.name is not set: name the Secret"):
        infrastructureobjects.provider_secret(Object({"spec": {"secretRef": {}}}))
