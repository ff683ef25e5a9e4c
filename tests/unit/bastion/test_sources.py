"""From where Bastions may be reached."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windowbox.errors import Malformed
from windowbox.models.gardener.bastion import BastionIngress
from workers.kinds.bastion.bastionobjects import sources


def ingress(*blocks: tuple[str, list[str]]) -> list[BastionIngress]:
    bodies: list[dict[str, Any]] = [
        {"ipBlock": {"cidr": cidr, "except": left_out}} for cidr, left_out in blocks
    ]
    return [BastionIngress.model_validate(body) for body in bodies]


def block(cidr: str, *left_out: str) -> tuple[str, list[str]]:
    return cidr, list(left_out)


@pytest.mark.parametrize(
    ("blocks", "found"),
    [
        pytest.param([block("203.0.113.7/32")], ["203.0.113.7/32"], id="BA-5-one-address"),
        pytest.param([block("203.0.113.7/24")], ["203.0.113.0/24"], id="B.5-bits-behind-the-prefix"),
        pytest.param([block("2001:DB8::1/64")], ["2001:db8::/64"], id="B.5-ipv6"),
        pytest.param(
            [block("::/0"), block("0.0.0.0/0")], ["0.0.0.0/0", "::/0"], id="B.5-everybody-of-both-families"
        ),
        pytest.param(
            [block("10.0.0.0/24", "10.0.0.0/26", "10.0.0.128/25")], ["10.0.0.64/26"], id="B.5-exceptions"
        ),
        pytest.param(
            [block("10.0.0.0/30", "10.0.0.1/32")], ["10.0.0.0/32", "10.0.0.2/31"], id="B.5-exception-within"
        ),
        pytest.param(
            [block("10.0.0.0/24", "10.0.0.0/25", "10.0.0.64/26")],
            ["10.0.0.128/25"],
            id="B.5-overlapping-ones",
        ),
        pytest.param(
            [block("10.0.0.0/25"), block("10.0.0.128/25"), block("10.0.0.9/32")],
            ["10.0.0.0/24"],
            id="B.5-blocks-that-touch",
        ),
        pytest.param(
            [block("10.0.0.0/24", "10.0.0.0/25"), block("10.0.0.5/32")],
            ["10.0.0.5/32", "10.0.0.128/25"],
            id="B.5-one-block-allows-what-another-leaves-out",
        ),
        pytest.param(
            [block("2001:db8::/126", "2001:db8::1/128")],
            ["2001:db8::/128", "2001:db8::2/127"],
            id="B.5-exception-of-ipv6",
        ),
        pytest.param(
            [block(f"198.51.{n}.0/24") for n in range(0, 200, 2)],
            [f"198.51.{n}.0/24" for n in range(0, 200, 2)],
            id="B.5-a-hundred-blocks",
        ),
    ],
)
def test_what_is_left_of_all_blocks(blocks: list[tuple[str, list[str]]], found: list[str]) -> None:
    assert sources(ingress(*blocks)) == found


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        pytest.param([], "spec.ingress is empty", id="BA-5-nobody"),
        pytest.param([block("203.0.113.7")], "spec.ingress[0].ipBlock.cidr is '203.0.113.7'", id="no-length"),
        pytest.param([block("::/0"), block("x")], "spec.ingress[1].ipBlock.cidr is 'x'", id="no-prefix"),
        pytest.param([block("10.0.0.0/33")], "spec.ingress[0].ipBlock.cidr is '10.0.0.0/33'", id="too-long"),
        pytest.param([block("10.0.0.0/255.0.0.0")], "is '10.0.0.0/255.0.0.0'", id="a-mask"),
        pytest.param([block("10.0.0.0/08")], "is '10.0.0.0/08'", id="a-zero-before"),
        pytest.param([block(" 10.0.0.0/8")], "is ' 10.0.0.0/8'", id="a-blank"),
        pytest.param([block("fe80::1%eth0/64")], "is 'fe80::1%eth0/64'", id="a-zone"),
        pytest.param([block("::ffff:10.0.0.0/104")], "is '::ffff:10.0.0.0/104'", id="ipv4-in-ipv6"),
        pytest.param(
            [block("10.0.0.0/24", "x")],
            "spec.ingress[0].ipBlock.except[0] is 'x'",
            id="nonsense-as-exception",
        ),
        pytest.param(
            [block("10.0.0.0/24", "10.0.1.0/24")],
            "except[0] is '10.0.1.0/24', which is no part of",
            id="outside",
        ),
        pytest.param([block("10.0.0.0/24", "10.0.0.0/24")], "no part of 10.0.0.0/24", id="the-whole-block"),
        pytest.param([block("10.0.0.0/24", "2001:db8::/64")], "no part of 10.0.0.0/24", id="another-family"),
        pytest.param(
            [block("0.0.0.0/0"), block("10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25")],
            "spec.ingress[1].ipBlock.except leaves nothing of 10.0.0.0/24",
            id="nothing-left",
        ),
        pytest.param(
            [block("::/0", *(f"{n:x}::1/128" for n in range(1, 100)))],
            "more than 5000 prefixes",
            id="too-many",
        ),
    ],
)
def test_what_makes_no_sense_is_named(blocks: list[tuple[str, list[str]]], said: str) -> None:
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
    allowed = {
        address
        for address in ip_network("10.0.0.0/24")
        for cidr, left_out in sound
        if address in ip_network(cidr) and not any(address in ip_network(one) for one in left_out)
    }
    try:
        found = [ip_network(one) for one in sources(ingress(*sound))]
    except Malformed:
        return  # a block of which nothing is left
    assert {
        address for address in ip_network("10.0.0.0/24") if any(address in one for one in found)
    } == allowed
    assert sum(one.num_addresses for one in found) == len(allowed)
    assert ip_address("10.0.1.0") not in found[-1]
