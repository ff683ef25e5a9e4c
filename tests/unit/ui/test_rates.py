"""Speeds from counters."""

from __future__ import annotations

from ui.rates import Meter

NOW = 1_000_000.0


def test_a_speed_is_known_from_the_second_look_on() -> None:
    meter = Meter()
    assert meter.speeds("a", (10, 1000), NOW) is None
    assert meter.speeds("a", (10, 1500), NOW + 0.1) is None
    assert meter.speeds("a", (14, 3000), NOW + 2) == (2, 1000)
    assert meter.speeds("b", (1, 1), NOW + 2) is None


def test_a_speed_is_that_of_the_last_seconds() -> None:
    meter = Meter()
    for second in range(0, 60, 3):
        found = meter.speeds("a", (second * second,), NOW + second)
    assert found == ((57**2 - 45**2) / 12,)


def test_nothing_is_concluded_from_long_ago_or_from_another_envoy() -> None:
    meter = Meter()
    meter.speeds("a", (100,), NOW)
    assert meter.speeds("a", (200,), NOW + 60) is None
    assert meter.speeds("a", (5,), NOW + 63) is None
    assert meter.speeds("a", (11,), NOW + 66) == (2,)


def test_the_memory_of_a_meter_is_bounded() -> None:
    meter = Meter()
    for number in range(20_100):
        meter.speeds(str(number), (1,), NOW)
    for second in range(1000):
        meter.speeds("20000", (1,), NOW + second)
    assert len(meter._samples) == 20_000
    assert len(meter._samples["20000"]) <= 10
