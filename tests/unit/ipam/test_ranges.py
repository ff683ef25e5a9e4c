"""Addresses to give away: each once, none that cannot be used, and the same for the same Service."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from itertools import islice
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.models.loadbalancers import Family
from windowbox.settings.lbsettings import Network, Range, range_for
from workers.loadbalancer.ipam import ranges


def of(*prefixes: str, clusters: tuple[str, ...] = ("*",)) -> Range:
    return Range.model_validate({"prefixes": prefixes, "clusters": clusters})


GARDENER = of("172.18.255.224/27", "fd00:ff::e0/123")


@cases(
    "cluster prefix",
    ("by-name", "runtime", "10.0.0.0/24"),
    ("by-pattern", "shoot--local--one", "10.0.1.0/24"),
    ("first-that-fits", "shoot--local--two", "10.0.1.0/24"),
    ("letters-count", "Runtime", None),
    ("none", "other", None),
)
def test_a_cluster_has_the_first_range_that_fits(cluster: str, prefix: str | None) -> None:
    configured = [
        of("10.0.0.0/24", clusters=("runtime",)),
        of("10.0.1.0/24", clusters=("elsewhere", "shoot--*")),
        of("10.0.2.0/24", clusters=("shoot--local--two",)),
    ]
    found = range_for(cluster, configured)
    assert (str(found.prefixes[0]) if found else None) == prefix


@cases(
    "range_ family expected",
    ("LB-11-4-not-the-broadcast", GARDENER, "IPv4", {f"172.18.255.{n}" for n in range(224, 255)}),
    ("LB-16-addresses-ipv6", GARDENER, "IPv6", {f"fd00:ff::{n:x}" for n in range(0xE0, 0x100)}),
    ("not-the-network", of("10.0.0.0/30"), "IPv4", {"10.0.0.1", "10.0.0.2", "10.0.0.3"}),
    ("a-single-one-is-meant", of("10.0.0.255/32"), "IPv4", {"10.0.0.255"}),
    ("two-are-meant", of("10.0.0.0/31"), "IPv4", {"10.0.0.0", "10.0.0.1"}),
    ("not-the-routers", of("fd00::/126"), "IPv6", {"fd00::1", "fd00::2", "fd00::3"}),
    ("not-localhost", of("127.0.0.0/30"), "IPv4", {"127.0.0.2", "127.0.0.3"}),
    (
        "several-prefixes",
        of("10.0.0.8/31", "10.0.9.8/31"),
        "IPv4",
        {"10.0.0.8", "10.0.0.9", "10.0.9.8", "10.0.9.9"},
    ),
    ("none-of-the-family", of("10.0.0.0/24"), "IPv6", set()),
)
@pytest.mark.parametrize("seed", ["runtime/default/web", "", "ß" * 300])
def test_every_usable_address_is_tried_once(
    range_: Range, family: Family, expected: set[str], seed: str
) -> None:
    tried = list(ranges.candidates(range_, family, seed))
    assert sorted(tried) == sorted(expected)
    assert ranges.size(range_, family) == len(expected)
    assert all(ranges.contains(range_, address) for address in expected)


@pytest.mark.parametrize(
    "address",
    ["172.18.255.255", "172.18.255.223", "fd00:ff::100", "10.0.0.1", "", "web", "172.18.255.224/27"],
)
def test_other_addresses_are_not_in_the_range(address: str) -> None:
    assert not ranges.contains(GARDENER, address)


def test_a_service_asks_for_the_same_address_again() -> None:
    first, again = (next(ranges.candidates(GARDENER, "IPv4", "runtime/default/web")) for _ in range(2))
    assert first == again


def test_services_ask_for_addresses_apart() -> None:
    wide = of("10.0.0.0/16")
    firsts = {next(ranges.candidates(wide, "IPv4", f"runtime/default/web-{n}")) for n in range(500)}
    assert len(firsts) > 480


def test_after_a_clash_services_go_different_ways() -> None:
    seconds = {list(islice(ranges.candidates(GARDENER, "IPv4", f"web-{n}"), 2))[1] for n in range(100)}
    assert len(seconds) > 10


def test_a_huge_prefix_is_no_burden() -> None:
    huge = of("2001:db8::/32")
    tried = list(islice(ranges.candidates(huge, "IPv6", "web"), 1000))
    assert len(set(tried)) == 1000
    assert ranges.size(huge, "IPv6") == 2**96 - 2**32


@st.composite
def small(draw: st.DrawFn) -> Range:
    """A prefix anywhere, small enough to count by hand."""
    v6 = draw(st.booleans())
    bits = 128 if v6 else 32
    length = draw(st.integers(bits - 11, bits))
    around = draw(st.sampled_from([0, 127 << 24, 10 << 24, 1, 1 << 64]))
    base = (around + draw(st.integers(0, 5000))) % 2**bits >> (bits - length) << (bits - length)
    return of(str(_network(base, length, v6)))


def _network(base: int, length: int, v6: bool) -> Network:
    return IPv6Network((base, length)) if v6 else IPv4Network((base, length))


@given(small(), st.text())
@rule("LB-11-4")
def test_the_size_equals_the_number_of_candidates(range_: Range, seed: str) -> None:
    for family in get_args(Family):
        found = list(ranges.candidates(range_, family, seed))
        assert len(found) == len(set(found)) == ranges.size(range_, family)
        assert {address for address in found if not ranges.contains(range_, address)} == set()
