"""The objects of a Bastion, and the clients that they admit."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models.gardener.bastion import BastionIngress
from workers.kinds.bastion import bastionobjects
from workers.kinds.bastion.bastionobjects import sources

SITE = bastionobjects.site("infra-shoot--a--b", "cli-x7k2p")
LABELS = {"app": "bastion", "bastion": "cli-x7k2p"}


def ingress(*blocks: str) -> list[BastionIngress]:
    """Of blocks such as `10.0.0.0/24 - 10.0.0.0/26 - 10.0.0.128/25`."""
    split = [block.split(" - ") for block in blocks]
    return [
        BastionIngress.model_validate({"ipBlock": {"cidr": cidr, "except": left_out}})
        for cidr, *left_out in split
    ]


@cases(
    "blocks, found",
    {
        "BA-5-one-address": (["203.0.113.7/32"], ["203.0.113.7/32"]),
        "B.5-bits-behind-the-prefix": (["203.0.113.7/24"], ["203.0.113.0/24"]),
        "B.5-ipv6": (["2001:DB8::1/64"], ["2001:db8::/64"]),
        "B.5-everybody-of-both-families": (["::/0", "0.0.0.0/0"], ["0.0.0.0/0", "::/0"]),
        "B.5-exceptions": (["10.0.0.0/24 - 10.0.0.0/26 - 10.0.0.128/25"], ["10.0.0.64/26"]),
        "B.5-exception-within": (["10.0.0.0/30 - 10.0.0.1/32"], ["10.0.0.0/32", "10.0.0.2/31"]),
        "B.5-overlapping-ones": (["10.0.0.0/24 - 10.0.0.0/25 - 10.0.0.64/26"], ["10.0.0.128/25"]),
        "B.5-blocks-that-touch": (["10.0.0.0/25", "10.0.0.128/25", "10.0.0.9/32"], ["10.0.0.0/24"]),
        "B.5-one-block-allows-what-another-leaves-out": (
            ["10.0.0.0/24 - 10.0.0.0/25", "10.0.0.5/32"],
            ["10.0.0.5/32", "10.0.0.128/25"],
        ),
        "B.5-exception-of-ipv6": (
            ["2001:db8::/126 - 2001:db8::1/128"],
            ["2001:db8::/128", "2001:db8::2/127"],
        ),
        "B.5-a-hundred-blocks": ([f"198.51.{n}.0/24" for n in range(0, 200, 2)],) * 2,
    },
)
def test_the_ranges_of_all_blocks(blocks: list[str], found: list[str]) -> None:
    assert sources(ingress(*blocks)) == found


@cases(
    "blocks, said",
    {
        "BA-5-nobody": ([], "spec.ingress is empty"),
        "no-length": (["203.0.113.7"], "spec.ingress[0].ipBlock.cidr is '203.0.113.7'"),
        "no-prefix": (["::/0", "x"], "spec.ingress[1].ipBlock.cidr is 'x'"),
        "too-long": (["10.0.0.0/33"], "spec.ingress[0].ipBlock.cidr is '10.0.0.0/33'"),
        "a-mask": (["10.0.0.0/255.0.0.0"], "is '10.0.0.0/255.0.0.0'"),
        "a-zero-before": (["10.0.0.0/08"], "is '10.0.0.0/08'"),
        "a-blank": ([" 10.0.0.0/8"], "is ' 10.0.0.0/8'"),
        "a-zone": (["fe80::1%eth0/64"], "is 'fe80::1%eth0/64'"),
        "ipv4-in-ipv6": (["::ffff:10.0.0.0/104"], "is '::ffff:10.0.0.0/104'"),
        "nonsense-as-exception": (["10.0.0.0/24 - x"], "spec.ingress[0].ipBlock.except[0] is 'x'"),
        "outside": (["10.0.0.0/24 - 10.0.1.0/24"], "except[0] is '10.0.1.0/24', which is no part of"),
        "the-whole-block": (["10.0.0.0/24 - 10.0.0.0/24"], "no part of 10.0.0.0/24"),
        "another-family": (["10.0.0.0/24 - 2001:db8::/64"], "no part of 10.0.0.0/24"),
        "nothing-left": (
            ["0.0.0.0/0", "10.0.0.0/24 - 10.0.0.0/25 - 10.0.0.128/25"],
            "spec.ingress[1].ipBlock.except leaves nothing of 10.0.0.0/24",
        ),
        "too-many": (
            [" - ".join(["::/0", *(f"{n:x}::1/128" for n in range(1, 100))])],
            "more than 5000 prefixes",
        ),
    },
)
def test_an_invalid_block_is_named(blocks: list[str], said: str) -> None:
    with pytest.raises(Malformed) as caught:
        sources(ingress(*blocks))
    assert said in str(caught.value)
    assert caught.value.codes == ("ERR_CONFIGURATION_PROBLEM",)


_prefixes = st.tuples(st.integers(0, 255), st.integers(24, 32)).map(
    lambda drawn: str(ip_network((f"10.0.0.{drawn[0]}", drawn[1]), strict=False))
)


@given(st.lists(st.tuples(_prefixes, st.lists(_prefixes, max_size=4)), min_size=1, max_size=4))
def test_only_clients_inside_the_ranges_are_accepted(blocks: list[tuple[str, list[str]]]) -> None:
    sound = [
        (cidr, [one for one in left_out if one != cidr and ip_network(one).subnet_of(ip_network(cidr))])  # type: ignore[arg-type]
        for cidr, left_out in blocks
    ]
    everybody = list(ip_network("10.0.0.0/24"))
    allowed = {
        address
        for address in everybody
        for cidr, left_out in sound
        if address in ip_network(cidr) and not any(address in ip_network(one) for one in left_out)
    }
    try:
        given = ingress(*(" - ".join([cidr, *left_out]) for cidr, left_out in sound))
        found = [ip_network(one) for one in sources(given)]
    except Malformed:
        return  # a block of which nothing is left
    assert {address for address in everybody if any(address in one for one in found)} == allowed
    assert sum(one.num_addresses for one in found) == len(allowed)
    assert ip_address("10.0.1.0") not in found[-1]


@rule("BA-2", "BA-6")
def test_the_secret_holds_the_user_data() -> None:
    assert bastionobjects.secret(SITE, "IyEvYmluL2Jhc2gKZWNobyBoZWxsbwo=") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "bastion-cli-x7k2p", "namespace": "infra-shoot--a--b", "labels": LABELS},
        "data": {"userdata": "IyEvYmluL2Jhc2gKZWNobyBoZWxsbwo="},
    }


@rule("BA-2")
def test_the_pod_is_a_machine_with_the_user_data() -> None:
    pod = bastionobjects.pod(SITE, "registry/node:1")
    assert pod["metadata"]["labels"] == LABELS
    [container] = pod["spec"].pop("containers")
    assert container.pop("readinessProbe")["tcpSocket"] == {"port": "ssh"}
    assert container == {
        "name": "machine",
        "image": "registry/node:1",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "ports": [{"name": "ssh", "containerPort": 22, "protocol": "TCP"}],
        "volumeMounts": [{"name": "userdata", "mountPath": "/etc/machine"}],
    }
    secret = {"secretName": "bastion-cli-x7k2p", "defaultMode": 511}
    assert pod["spec"]["volumes"] == [{"name": "userdata", "secret": secret}]
    assert pod["spec"]["automountServiceAccountToken"] is False


@rule("BA-2", "B.5")
def test_the_service_admits_the_ranges_of_the_bastion() -> None:
    service = bastionobjects.service(SITE, ["203.0.113.7/32", "2001:db8::/64"])
    assert service["spec"] == {
        "type": "LoadBalancer",
        "selector": LABELS,
        "ports": [{"name": "ssh", "port": 22, "protocol": "TCP", "targetPort": 22, "appProtocol": "ssh"}],
        "loadBalancerSourceRanges": ["203.0.113.7/32", "2001:db8::/64"],
    }


@rule("BA-2")
def test_the_policy_opens_ssh_names_and_machines() -> None:
    policy = bastionobjects.policy(SITE)
    assert policy["metadata"]["labels"] == LABELS | {"app.kubernetes.io/managed-by": "provider-local"}

    def pods(app: str) -> dict[str, object]:
        return {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": [app]}]},
        }

    names, machines = policy["spec"].pop("egress")
    blocks: list[Any] = [
        {"ipBlock": {"cidr": cidr}} for cidr in ("169.254.20.10/32", "fd30:1319:f1e:230b::1/128")
    ]
    assert names["to"] == [pods("kube-dns"), pods("node-local-dns"), *blocks]
    assert sorted(f"{port['protocol']} {port['port']}" for port in names["ports"]) == [
        "TCP 53", "TCP 8053", "UDP 53", "UDP 8053",
    ]  # fmt: skip
    ssh = [{"protocol": "TCP", "port": 22}]
    assert machines == {"to": [{"podSelector": {"matchLabels": {"app": "machine"}}}], "ports": ssh}
    assert policy["spec"] == {
        "podSelector": {"matchLabels": LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": ssh}],
    }


@cases("name", {"BA-2-too-long": "a" * 56, "BA-2-dots": "a.b"})
def test_names_that_no_service_can_have_are_refused(name: str) -> None:
    with pytest.raises(Malformed, match=r"metadata\.name is"):
        bastionobjects.site("infra-a", name)


def test_the_longest_name_and_one_of_digits_are_fine() -> None:
    assert len(bastionobjects.site("infra-a", "a" * 55).name) == 63
    assert bastionobjects.site("infra-a", "1").name == "bastion-1"


@pytest.mark.parametrize("data", ["no base64", "YQ"])
def test_user_data_that_is_not_base64_is_refused(data: str) -> None:
    with pytest.raises(Malformed, match=r"spec\.userData is not base64"):
        bastionobjects.secret(SITE, data)
