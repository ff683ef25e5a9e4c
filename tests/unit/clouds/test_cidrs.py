"""CIDR arithmetic: Go's results, and no comparison of everything with everything."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clouds.frame.cidrs import Cidr, meeting_each_other, not_canonical, outside

_NETWORKS = st.one_of(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)).map(
        lambda one: ip_network((one[0] >> (32 - one[1]) << (32 - one[1]), one[1]))
    ),
    # Few and large, so that many of them meet.
    st.tuples(st.integers(0, 15), st.integers(1, 6)).map(
        lambda one: ip_network(((one[0] << 28) >> (32 - one[1]) << (32 - one[1]), one[1]))
    ),
)


@given(st.lists(_NETWORKS, max_size=12))
def test_a_range_is_refused_if_it_meets_an_earlier_one(networks: list[object]) -> None:
    cidrs = [Cidr(str(network), str(i)) for i, network in enumerate(networks)]

    found = {problem.path for problem in meeting_each_other(cidrs)}

    assert found == {
        str(i)
        for i, one in enumerate(networks)
        if any(one.overlaps(other) for other in networks[:i])  # type: ignore[attr-defined]
    }


@given(_NETWORKS, _NETWORKS)
def test_subsets_are_those_of_the_library(outer: object, inner: object) -> None:
    problems = list(outside(Cidr(str(outer), "outer"), Cidr(str(inner), "inner")))

    assert (not problems) == inner.subnet_of(outer)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.0",
        "10.0.0.0/33",
        "10.0.0/8",
        "10.0.0.0/-1",
        "010.0.0.0/8",
        "fe80::1%eth0/64",
        " 10.0.0.0/8",
    ],
)
def test_texts_that_go_refuses_are_no_ranges(text: str) -> None:
    assert not Cidr(text, "path").is_range


def test_ipv4_within_ipv6_is_ipv4() -> None:
    assert Cidr("10.0.0.0/8", "outer").contains(Cidr("::ffff:10.1.0.0/112", "inner"))


def test_bits_behind_the_prefix_are_refused() -> None:
    assert [problem.path for problem in not_canonical(Cidr("10.0.0.1/8", "here"), Cidr("none", "there"))] == [
        "here"
    ]


def test_ten_thousand_ranges_are_looked_up_and_not_compared() -> None:
    cidrs = [Cidr(f"10.{i >> 8}.{i & 255}.0/24", str(i)) for i in range(10_000)]
    looked_up = 0

    class Counted(Cidr):
        def meets(self, other: Cidr) -> bool:
            nonlocal looked_up
            looked_up += 1
            return super().meets(other)

    assert list(meeting_each_other([Counted(one.text, one.path) for one in cidrs])) == []
    assert looked_up == 0
