from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lifecycleobjects import record
from tests.support.rules import rule
from windowbox import errors
from windowbox.errors import Conflict, Malformed, Refused, Unreachable
from windowbox.models.gardener.dnsrecord import DNSRecordStatus
from windowbox.models.objects import merge, replacement
from workers.core.lifecycle import statuses
from workers.core.lifecycle.operations import Flow, Operation
from workers.core.lifecycle.statuses import Condition, OperationTexts

NOW = datetime(2026, 9, 1, 10, 15, 31, 999999, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
RECONCILING = statuses.descriptions_for("DNSRecord").reconcile


AT = "2026-09-01T10:15:31Z"


def operation(type_: str, state: str, progress: int, description: str) -> dict[str, Any]:
    """The last operation as a report of NOW has it."""
    about = {"type": type_, "state": state, "progress": progress}
    return {**about, "description": description, "lastUpdateTime": AT}


@rule("U-1", "V-6", "F-4")
def test_while_processing_generation_and_old_error_stay_as_they_are() -> None:
    assert statuses.processing(Operation.CREATE, RECONCILING, NOW) == {
        "lastOperation": operation("Create", "Processing", 1, "Reconciling the DNSRecord")
    }


@rule("S-1", "S-2", "S-3", "W-1", "W-2", "W-4", "W-8", "F-4")
def test_success_reports_the_generation_and_removes_the_error() -> None:
    assert statuses.succeeded(Operation.RECONCILE, RECONCILING, 4, NOW) == {
        "observedGeneration": 4,
        "lastOperation": operation("Reconcile", "Succeeded", 100, "Successfully reconciled DNSRecord"),
        "lastError": None,
    }


@rule("U-1", "S-1", "S-2", "F-4")
def test_failure_is_described_in_both_places() -> None:
    error = Unreachable("DNS update exchange failed: no such host")
    description = "Error reconciling DNSRecord: DNS update exchange failed: no such host"
    assert statuses.failed(Operation.CREATE, RECONCILING, error, 1, NOW) == {
        "observedGeneration": 1,
        "lastOperation": operation("Create", "Error", 50, description),
        "lastError": {"description": description, "codes": None, "lastUpdateTime": AT},
    }


@rule("U-1")
@pytest.mark.parametrize(
    ("headline", "begins"),
    [("could not", "Could not"), ("Error", "Error"), ("élan", "élan"), ("ßharp", "ßharp")],
    ids=["ascii", "capital", "two-bytes", "two-letters"],
)
def test_only_a_first_letter_of_one_byte_is_made_a_capital(headline: str, begins: str) -> None:
    phrases = OperationTexts("", "", headline)
    found = statuses.failed(Operation.CREATE, phrases, Refused("no"), 1, NOW)
    assert found["lastError"]["description"] == f"{begins}: no"


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "codes"),
    [
        pytest.param(Refused("no"), [], id="U-2+E-2-none"),
        pytest.param(Malformed("what?"), ["ERR_CONFIGURATION_PROBLEM"], id="U-2-of-its-class"),
        pytest.param(Refused("no", codes=("A", "B")), ["A", "B"], id="U-2+E-1-its-own"),
        pytest.param(caused(Refused("no"), Refused("why", codes=("A",))), ["A"], id="U-2-of-its-cause"),
        pytest.param(
            caused(Refused("no", codes=("A",)), Refused("why", codes=("B",))), ["A"], id="U-2-the-nearest"
        ),
        pytest.param(
            caused(OSError("no"), Malformed("why")), ["ERR_CONFIGURATION_PROBLEM"], id="U-2-foreign"
        ),
        pytest.param(
            ExceptionGroup("all", [Refused("a", codes=("A",)), OSError(), Refused("b", codes=("A", "B"))]),
            ["A", "A", "B"],
            id="U-2-of-several-nothing-de-duplicated",
        ),
    ],
)
def test_codes_of_an_error(error: Exception, codes: list[str]) -> None:
    assert errors.codes(error) == codes


@rule("U-2")
def test_codes_of_the_previous_error_are_removed() -> None:
    first = statuses.failed(Operation.CREATE, RECONCILING, Refused("no", codes=("A",)), 1, NOW)
    second = statuses.failed(Operation.CREATE, RECONCILING, Conflict("no"), 1, LATER)
    assert merge({}, first)["lastError"]["codes"] == ["A"]
    assert "codes" not in merge(merge({}, first), second)["lastError"]


@rule("U-1")
def test_a_long_value_does_not_cut_the_remedy() -> None:
    error = Malformed(f"spec.secretRef: Secret {'x' * 1_000_000} does not exist: create it")
    patch = statuses.failed(Operation.CREATE, RECONCILING, error, 1, NOW)
    said = patch["lastError"]["description"]
    assert said == patch["lastOperation"]["description"]
    assert said.startswith("Error reconciling DNSRecord: spec.secretRef: Secret xxx")
    assert said.endswith("xxx does not exist: create it")
    assert len(said) == 2003


def test_errors_without_text_and_groups_have_a_text() -> None:
    assert statuses.text(TimeoutError()) == "TimeoutError"
    assert statuses.text(ExceptionGroup("all", [Refused("one"), TimeoutError()])) == "one; TimeoutError"


@pytest.mark.parametrize("kind", ["DNSRecord", "ControlPlane", "Network"])
@pytest.mark.parametrize(
    ("flow", "doing", "done"),
    [
        pytest.param(Flow.RECONCILE, "Reconciling", "reconciled", id="U-1-reconcile"),
        pytest.param(Flow.DELETE, "Deleting", "deleted", id="U-1-delete"),
        pytest.param(Flow.MIGRATE, "Migrating", "migrated", id="U-1-migrate"),
        pytest.param(Flow.RESTORE, "Restoring", "restored", id="U-1-restore"),
    ],
)
def test_descriptions(kind: str, flow: Flow, doing: str, done: str) -> None:
    texts = (f"{doing} the {kind}", f"Successfully {done} {kind}", f"Error {doing.lower()} {kind}")
    assert statuses.descriptions_for(kind).of(flow) == OperationTexts(*texts)


@pytest.mark.parametrize(
    ("asked", "reported"),
    [
        pytest.param(None, AT, id="V-6-never-asked"),
        pytest.param("2026-09-01T10:15:30.5Z", AT, id="V-6-asked-before"),
        pytest.param("2026-09-01T10:15:33.5Z", "2026-09-01T10:15:33Z", id="W-5+W-7-clock-ahead-of-ours"),
        pytest.param("2026-09-01T10:30:00Z", AT, id="W-7-clock-is-wrong"),
        pytest.param("soon", AT, id="W-7-unreadable"),
    ],
)
def test_the_time_reported_is_not_before_the_client_asked(asked: str | None, reported: str) -> None:
    moment = statuses.report_time(record(timestamp=asked), NOW)
    success = statuses.succeeded(Operation.CREATE, RECONCILING, 1, moment)
    assert success["lastOperation"]["lastUpdateTime"] == reported


T0, T1 = AT, "2026-09-01T10:16:31Z"


def conditions(said: Condition, *before: Condition) -> list[dict[str, Any]]:
    """The conditions after those of NOW and then, LATER, this one."""
    found: list[dict[str, Any]] = []
    for moment, one in zip((NOW, LATER), (*before, said), strict=False):
        found = statuses.with_condition(found, one, moment)
    return found


@pytest.mark.parametrize(
    ("said", "transition", "update"),
    [
        pytest.param(Condition("Created", "True", "R", "M"), T0, T0, id="S-5-nothing-new"),
        pytest.param(Condition("Created", "False", "R", "M"), T1, T0, id="S-5-other-status"),
        pytest.param(Condition("Created", "True", "R2", "M"), T0, T1, id="S-5-other-reason"),
        pytest.param(Condition("Created", "True", "R", "M2"), T0, T1, id="S-5-other-message"),
        pytest.param(Condition("Created", "True", "R", "M", ("A",)), T0, T1, id="S-5-other-codes"),
        pytest.param(Condition("Created", "Unknown", "R2", "M"), T1, T1, id="S-4+S-5-all-other"),
    ],
)
def test_the_times_of_a_condition_move_with_its_parts(said: Condition, transition: str, update: str) -> None:
    (after,) = conditions(said, Condition("Created", "True", "R", "M"))
    assert (after["lastTransitionTime"], after["lastUpdateTime"]) == (transition, update)


@rule("S-5")
def test_a_condition_has_a_reason_and_only_its_own_codes() -> None:
    (found,) = conditions(Condition("Created", "True", "", ""))
    assert (found["reason"], found["message"]) == ("Unspecified", "No message given.")
    coded = Condition("Created", "False", "R", "M", ("A",))
    assert "codes" not in conditions(Condition("Created", "False", "R", "M"), coded)[0]


@rule("V-8")
def test_conditions_of_others_stay_in_their_places() -> None:
    other = {"type": "ControlPlaneHealthy", "status": "True"}
    before = [*conditions(Condition("Created", "False", "R", "M")), other]
    after = statuses.with_condition(before, Condition("Created", "True", "R", "M"), LATER)
    assert [condition["type"] for condition in after] == ["Created", "ControlPlaneHealthy"]
    assert after[1] == other


TRUE = {
    "type": "Created",
    "status": "True",
    "reason": "Success",
    "message": "Record was created successfully in infrastructure at least once",
    "lastTransitionTime": T0,
    "lastUpdateTime": T0,
}
FALSE = TRUE | {
    "status": "False",
    "reason": "Error",
    "message": "Error on initial record creation in infrastructure",
}


@pytest.mark.parametrize(
    ("before", "flow", "succeeded", "after"),
    [
        pytest.param([], Flow.RECONCILE, True, [TRUE], id="D-1-first-success"),
        pytest.param([], Flow.RESTORE, True, [TRUE], id="D-1-restored"),
        pytest.param([], Flow.RECONCILE, False, [FALSE], id="D-1-first-error"),
        pytest.param([], Flow.RESTORE, False, [FALSE], id="D-1-not-restored"),
        pytest.param([TRUE], Flow.RECONCILE, False, [TRUE], id="D-1-never-downgraded"),
        pytest.param([FALSE], Flow.RECONCILE, False, [FALSE], id="D-1-still-not"),
        pytest.param([], Flow.DELETE, True, [], id="D-1-nothing-on-delete"),
        pytest.param([TRUE], Flow.MIGRATE, False, [TRUE], id="D-1-nothing-on-migrate"),
    ],
)
def test_the_condition_created(
    before: list[dict[str, Any]], flow: Flow, succeeded: bool, after: list[dict[str, Any]]
) -> None:
    assert statuses.created_condition(before, flow, succeeded, NOW) == after


@rule("D-1", "S-5")
def test_only_a_record_that_never_existed_needs_no_deletion() -> None:
    assert [statuses.never_created(before) for before in ([FALSE], [TRUE], [])] == [True, False, False]
    (found,) = statuses.created_condition([FALSE], Flow.RECONCILE, True, LATER)
    assert found == TRUE | {"lastTransitionTime": T1, "lastUpdateTime": T1}


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="remove"),
        pytest.param({"a": ["b"]}, {"a": ["c", None]}, {"a": ["c", None]}, id="lists-as-a-whole"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="nested"),
        pytest.param({"a": "b"}, ["c"], ["c"], id="not-an-object"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="untouched-null"),
        pytest.param([1, 2], {"a": "b", "c": None}, {"a": "b"}, id="onto-a-list"),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="nulls-of-new-parts"),
    ],
)
def test_merge_patches_as_in_the_examples_of_rfc_7396(target: Any, patch: Any, merged: Any) -> None:
    assert merge(target, patch) == merged


_json = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.dictionaries(st.text(max_size=2), st.none() | inner, max_size=3) | st.lists(inner, max_size=2)
    ),
)


@given(_json, _json)
def test_merging_twice_is_merging_once(target: Any, patch: Any) -> None:
    once = merge(target, patch)
    assert merge(once, patch) == once


@rule("S-1", "U-3")
@given(st.sampled_from(Operation), st.text(), st.integers(1))
def test_every_report_is_a_status_that_the_api_accepts(type_: Operation, words: str, generation: int) -> None:
    conditions = statuses.created_condition([], Flow.RECONCILE, False, NOW)
    failure = statuses.failed(type_, RECONCILING, Refused(words), generation, NOW)
    found = merge({"conditions": conditions}, failure)
    status = DNSRecordStatus.model_validate(found)
    assert status.last_error is not None
    assert status.last_operation is not None
    assert status.last_error.description == status.last_operation.description


_status = st.recursive(st.integers(), lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3))
"""No stored object has nulls."""


@given(*[st.dictionaries(st.text(max_size=2), _status)] * 2)
def test_a_replacement_leaves_nothing_of_what_was(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert merge(found, replacement(found, wanted)) == wanted
