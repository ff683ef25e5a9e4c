"""How pools are divided among zones."""

from __future__ import annotations

import pytest

from workers.machines.worker import zones


@pytest.mark.parametrize(
    ("size", "shares"),
    [
        pytest.param(3, [2, 1], id="A6-R8-three"),
        pytest.param(5, [3, 2], id="A6-R8-five"),
        pytest.param(0, [0, 0], id="A6-R8-none"),
        pytest.param(7, [3, 2, 2], id="A6-R8-three-zones"),
    ],
)
def test_the_first_zones_get_more(size: int, shares: list[int]) -> None:
    assert [zones.share(zone, size, len(shares)) for zone in range(len(shares))] == shares
