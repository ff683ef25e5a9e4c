"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from windowbox.models import durations


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("0s", 0),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("20ms", 0.02),
        ("5μs", 5e-6),
        ("", None),
        ("90", None),
        ("-1s", None),
        ("1d", None),
        ("1h 30m", None),
        ("1" * 99 + "s", None),
        ("1s" * 50, None),
        ("1\u0661s", None),
    ],
)
def test_durations_are_read_as_go_reads_them(written: str, seconds: float | None) -> None:
    assert durations.seconds(written) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(("written", "seconds"), [("1s", 1), ("1h", 3600), ("999ms", None), ("61m", None)])
def test_durations_are_within_their_bounds(written: str, seconds: float | None) -> None:
    assert durations.seconds(written, least=1, most=3600) == seconds
