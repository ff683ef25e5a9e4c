"""What needs attention, by pure functions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bus import subjects
from commands.busstatus import PoolState
from tests.support.pages import record
from ui.health import Health
from ui.mirror import LastRun, Later
from ui.views import attention
from ui.views.attention import Need

NOW = 1_000_000.0
WWW = record("www")
PLACE = ("dnsrecord", subjects.key(WWW))


def last(*, failed: bool = True, since: float = NOW - 10, note: str = "no answer", **more: Any) -> LastRun:
    fields: dict[str, Any] = {"started": NOW - 10, "attempt": 1, "certain": True, **more}
    return LastRun("dnsrecord", WWW, failed, note, since=since, **fields)


def later(due: float, made: float = NOW - 9, *, quarantined: bool = False) -> Later:
    return Later(due, made, "", quarantined)


def only(**given: Any) -> Need:
    whole: dict[str, Any] = {"objects": [], "ill": {}, "later": {}, "pools": [], "now": NOW} | given
    [need] = attention.needs(**whole)
    return need


def test_a_failed_run_says_why_and_when_it_is_tried_again() -> None:
    need = only(ill={PLACE: last()}, later={PLACE: later(NOW + 30)})
    assert (need.level, need.reason, need.since, need.due) == ("failed", "no answer", NOW - 10, NOW + 30)
    assert need.next == "tried again by itself"


def test_a_failed_run_without_a_schedule_needs_a_person() -> None:
    need = only(ill={PLACE: last()}, later={PLACE: later(NOW + 30, made=NOW - 60)})
    assert need.due == 0
    assert need.next == "correct what it says: a change of the object starts the next run"


@pytest.mark.parametrize(("since", "level"), [(NOW - 60, "waiting"), (NOW - 180, "stuck")])
def test_what_waits_needs_attention_after_a_while(since: float, level: str) -> None:
    assert only(ill={PLACE: last(failed=False, since=since)}).level == level


def test_an_object_is_told_once_in_the_words_of_its_run() -> None:
    need = only(ill={PLACE: last()}, objects=[(WWW, Health("failed", "as the status says", NOW - 5))])
    assert need.reason == "no answer"


def test_an_object_that_is_not_well_is_told_even_if_its_run_went_well() -> None:
    need = only(objects=[(WWW, Health("degraded", "Ready is false", NOW - 5))])
    assert (need.level, need.reason, need.since) == ("stuck", "Ready is false", NOW - 5)


def test_a_pool_without_workers_is_told_if_something_waits_there() -> None:
    need = only(pools=[PoolState("worker", waiting=3, oldest_seconds=7.0), PoolState("bastion")])
    assert need.reason == "no process works for pool worker: 3 objects wait"
    assert (need.since, need.next) == (NOW - 7, "start one: windowbox work --pool worker")


def test_quarantine_is_told_until_it_ends() -> None:
    need = only(later={PLACE: later(NOW + 500, quarantined=True)})
    assert need.reason == "in quarantine: its runs ended their process"
    assert attention.needs([], {}, {PLACE: later(NOW - 1, quarantined=True)}, [], NOW) == []


def test_objects_with_one_reason_but_for_names_and_numbers_are_one_row() -> None:
    found = [
        Need("failed", f"{name}: 10.0.0.{n} does not answer", NOW - n, "", ref=record("x", name))
        for n, name in enumerate(("shoot--a--one", "shoot--a--two", "shoot--a--three"), 1)
    ]
    [group] = attention.groups(found)
    assert (group.count, group.since, len(group.refs)) == (3, NOW - 3, 3)


def test_the_model_counts_what_is_well_in_one_number() -> None:
    found = attention.needs([], {PLACE: last()}, {}, [], NOW)
    model = attention.model(found, {WWW.kind: Counter(well=41, failed=1)}, True, [{}])
    assert (model.troubled, model.well, model.busy, model.processes) == (1, 41, 0, 1)
    assert model.kinds == (("DNSRecord", 42),)
