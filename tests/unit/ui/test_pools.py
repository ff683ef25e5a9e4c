"""Pools, leases and rates, by pure functions."""

from __future__ import annotations

from bus import subjects
from commands.busstatus import PoolState
from tests.support.pages import record
from ui.bustools import Lease, Stream
from ui.mirror import Later
from ui.rates import Rates
from ui.views import pools

NOW = 1_000_000.0
WWW = record("www")


def test_rates_are_counted_by_pool_and_time() -> None:
    rates = Rates()
    for ago in (1, 2, 30, 500, 5000):
        rates.count("a", NOW - ago, failed=ago == 30, seconds=ago / 100)
    figures = rates.figures("a", NOW)
    assert len(figures.counts) == 60
    assert sum(figures.counts) == 4
    assert (round(figures.rate * 60), figures.failed, figures.seconds) == (3, 1, 0.3)
    assert rates.figures("b", NOW).seconds is None


def test_the_memory_of_rates_is_bounded() -> None:
    rates = Rates()
    for step in range(10_000):
        rates.count("a", step * 10, failed=True, seconds=1)
    assert len(rates._counts["a"]) <= 62


def test_idle_pools_are_one_line() -> None:
    states = [PoolState("a", workers=1), PoolState("b", workers=1, waiting=2, oldest_seconds=9)]
    found = pools.model(states, Rates(), {}, [], [], [], None, NOW)
    assert [row.pool.pool for row in found.rows] == ["b"]
    assert [row.pool.pool for row in found.idle] == ["a"]
    assert found.rows[0].tone == "late"


def test_processes_are_shown_with_their_leases_and_silent_holders_too() -> None:
    present = [{"process": "p", "role": "work", "ready": True, "pools": [{"pool": "a", "in flight": 2}]}]
    leases = [Lease("sweep.a", "p"), Lease("edge", "q"), Lease("garden", "")]
    found = pools.model([], Rates(), {}, [], leases, present, None, NOW)
    assert [(one.name, one.role, one.working, one.leases) for one in found.processes] == [
        ("p", "work", 2, ("sweep.a",)), ("q", "", 0, ("edge",))
    ]  # fmt: skip
    assert found.free == ("garden",)


def test_quarantine_is_listed_while_it_lasts() -> None:
    place = ("dnsrecord", subjects.key(WWW))
    later = {
        place: Later(NOW + 5, NOW, "", True),
        ("worker", subjects.key(WWW)): Later(NOW + 5, NOW, "", False),
    }
    [found] = pools.quarantined(later, NOW)
    assert (found.pool, found.ref, found.until) == ("dnsrecord", WWW, NOW + 5)
    assert pools.quarantined(later, NOW + 6) == []


def test_a_stream_that_is_nearly_full_or_has_a_late_copy_is_marked() -> None:
    assert pools.StreamRow(Stream("A", 1, 90, 100, "", ())).tone == "late"
    assert pools.StreamRow(Stream("A", 1, 10, 100, "n1", ("n2",))).tone == "bad"
    assert pools.StreamRow(Stream("A", 1, 10, -1, "", ())).tone == ""
