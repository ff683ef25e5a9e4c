"""Messages of older and newer versions."""

from __future__ import annotations

import orjson
import pytest

from bus.messages import Reason, Result, RunRecord, Wish

RUN = {
    "pool": "dnsrecord",
    "key": "runtime.dnsrecords.demo.web",
    "wish": {"reason": "drift", "attempt": 2},
    "wish_sequence": 7,
    "delivery": 1,
    "started": "2025-01-01T00:00:00Z",
    "seconds": 0.1,
    "process": "host/1",
    "outcome": "asserted again",
}


@pytest.mark.parametrize(
    ("reason", "implied"),
    [
        ("event", {"changed"}),
        ("drift", {"drift", "verify"}),
        ("late report", {"verify"}),
        ("sweep", {"overdue"}),
        ("retry", {"reported"}),
        ("report", set()),
        ("set aside before", set()),
        ("grace is over", set()),
    ],
)
def test_an_old_wish_means_what_its_reason_meant(reason: str, implied: set[str]) -> None:
    wish = Wish.model_validate_json(orjson.dumps({"reason": reason, "attempt": 2}))
    flags = {name for name, value in orjson.loads(wish.encoded()).items() if value is True}
    assert (wish.reason, wish.attempt, flags) == (reason, 2, implied)
    assert wish.reason in Reason


def test_an_old_run_record_is_read() -> None:
    run = RunRecord.model_validate_json(orjson.dumps(RUN))
    assert run.outcome is Result.SUCCEEDED
    assert run.wish == Wish(reason=Reason.DRIFT, attempt=2)
    assert orjson.loads(run.encoded())["outcome"] == "succeeded"


def test_a_newer_versions_reason_is_kept() -> None:
    wish = Wish.model_validate_json(b'{"reason":"eclipse","insist":true,"lunar":true}')
    assert wish.reason == "eclipse"
    assert f"{wish.reason}" == "eclipse"
    assert wish.reason not in set(Reason)
    assert (wish.insist, wish.drift, wish.verify) == (True, False, False)
    assert orjson.loads(wish.encoded()) == {"reason": "eclipse", "insist": True}


def test_a_newer_versions_outcome_is_kept() -> None:
    run = RunRecord.model_validate_json(orjson.dumps({**RUN, "outcome": "postponed"}))
    assert run.outcome == "postponed"
    assert orjson.loads(run.encoded())["outcome"] == "postponed"


def test_an_older_version_understands_todays_wish() -> None:
    assert orjson.loads(Wish(reason=Reason.DRIFT).encoded())["reason"] == "drift"


def test_a_wish_on_top_of_another_loses_nothing() -> None:
    both = Wish(reason=Reason.EVENT, attempt=3).insisting() | Wish(reason=Reason.LATE_REPORT)
    assert (both.reason, both.attempt) == (Reason.LATE_REPORT, 3)
    assert both.also == {Reason.EVENT, Reason.CUT_OFF}
    assert Wish.decoded(both.encoded()) == both


def test_a_change_starts_the_backoff_anew() -> None:
    failed = Wish(reason=Reason.RETRY, attempt=3)
    assert failed | Wish(reason=Reason.EVENT) == Wish(reason=Reason.EVENT)
    assert failed | Wish(reason=Reason.DRIFT) == Wish(
        reason=Reason.DRIFT, attempt=3, also=frozenset({Reason.RETRY})
    )
