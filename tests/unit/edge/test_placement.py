"""Which host an address is placed on."""

from __future__ import annotations

from collections import Counter

import pytest

from workers.loadbalancer.edge import placement

ADDRESSES = [f"10.0.{i // 250}.{i % 250 + 1}" for i in range(1000)]


def test_each_host_gets_its_share() -> None:
    shares = Counter(placement.placed(one, {"a", "b", "c"}) for one in ADDRESSES)
    assert all(280 < share < 390 for share in shares.values()), shares


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"a", "b", "c"}, {"a", "c"}, id="a-host-dies"),
        pytest.param({"a", "c"}, {"a", "b", "c"}, id="a-host-comes"),
    ],
)
def test_only_the_addresses_of_the_host_in_question_move(before: set[str], after: set[str]) -> None:
    moved = {
        one: (was, now)
        for one in ADDRESSES
        if (was := placement.placed(one, before)) != (now := placement.placed(one, after))
    }
    assert all("b" in pair for pair in moved.values())
    assert 280 < len(moved) < 390
