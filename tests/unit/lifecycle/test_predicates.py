from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lifecycleobjects import record
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.core.lifecycle.runpredicates import (
    EventType,
    Scope,
    classes_for,
    needs_old,
    overdue,
    responsible,
    triggers,
    wants_run,
)

LOCAL = frozenset({"local"})
OURS = Scope(LOCAL, frozenset({"shoot"}))
IGNORING = Scope(LOCAL, frozenset({"shoot"}), ignore_operation_annotation=True)
DONE = "Create/Succeeded"
ADDED, LISTED, MODIFIED, DELETED = EventType


@pytest.mark.parametrize(
    ("seen", "old", "new", "default", "ignoring"),
    [
        pytest.param(ADDED, None, record(), True, True, id="C.5-1-new-without-status"),
        pytest.param(ADDED, None, record(last=DONE), False, True, id="C.5-2-known-and-succeeded"),
        pytest.param(ADDED, None, record(last="Create/Error"), True, True, id="C.5-3-known-with-an-error"),
        pytest.param(ADDED, None, record("wait-for-state"), True, True, id="C.5-4-new-and-waiting-for-state"),
        pytest.param(
            MODIFIED,
            record(last=DONE),
            record(last=DONE, generation=2),
            False,
            True,
            id="C.5-5+T-4-only-the-spec-changed",
        ),
        pytest.param(
            MODIFIED, record(last=DONE), record("reconcile", DONE), True, False, id="C.5-6-asked-to-reconcile"
        ),
        pytest.param(
            MODIFIED,
            record("reconcile", DONE, timestamp="2026-09-01T10:15:30Z"),
            record("reconcile", DONE, timestamp="2026-09-01T10:15:40Z"),
            True,
            False,
            id="C.5-7-asked-again-before-we-looked",
        ),
        pytest.param(
            MODIFIED,
            record("migrate", DONE),
            record("migrate", "Migrate/Processing"),
            True,
            False,
            id="C.5-8-own-report-while-migrating",
        ),
        pytest.param(
            MODIFIED,
            record(last=DONE),
            record(last=DONE, deleting=True, generation=2),
            True,
            True,
            id="C.5-9-is-to-be-deleted",
        ),
        pytest.param(
            MODIFIED,
            record(last=DONE, deleting=True),
            record(last="Delete/Processing", deleting=True),
            False,
            False,
            id="C.5-10-own-report-while-deleting",
        ),
        pytest.param(
            MODIFIED,
            record(last="Delete/Error", deleting=True, timestamp="2026-09-01T10:15:30Z"),
            record(last="Delete/Error", deleting=True, timestamp="2026-09-01T10:15:40Z"),
            True,
            False,
            id="C.5-11-asked-again-to-delete",
        ),
        pytest.param(
            MODIFIED,
            record("reconcile", DONE),
            record(last=DONE),
            False,
            False,
            id="C.5-12+V-5-own-patch-took-the-wish-away",
        ),
        pytest.param(DELETED, None, record(last=DONE), False, True, id="C.5-13-gone"),
        pytest.param(
            ADDED, None, record("reconcile", class_="seed"), False, False, id="C.5-14-new-of-another-class"
        ),
        pytest.param(
            MODIFIED,
            record(class_="seed"),
            record("reconcile", class_="seed", generation=2),
            False,
            False,
            id="C.5-14-changed-of-another-class",
        ),
    ],
)
def test_what_starts_a_run(
    seen: EventType, old: Object | None, new: Object, default: bool, ignoring: bool
) -> None:
    assert triggers(seen, old, new, OURS) is default
    assert triggers(seen, old, new, IGNORING) is ignoring


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        pytest.param(record("reconcile", DONE), True, id="T-3-asked-to-reconcile"),
        pytest.param(record("migrate", DONE), True, id="T-3-asked-to-migrate"),
        pytest.param(record("restore", "Migrate/Succeeded"), True, id="T-3-asked-to-restore"),
        pytest.param(record(last=DONE, deleting=True), True, id="T-3-deleting"),
        pytest.param(record(), True, id="T-3-never-run"),
        pytest.param(record(last="Reconcile/Processing"), True, id="T-3+T-4-died-while-processing"),
        pytest.param(record(last="Reconcile/Error"), True, id="T-3+T-4-failed"),
        pytest.param(record(last=DONE), False, id="T-3-succeeded"),
        pytest.param(record("keepalive", DONE), False, id="T-3-word-of-another-controller"),
        pytest.param(record("wait-for-state", DONE), False, id="T-3-waiting-for-state-after-success"),
    ],
)
def test_an_object_seen_for_the_first_time_or_again_after_a_gap(obj: Object, wanted: bool) -> None:
    assert wants_run(obj) is wanted
    assert triggers(ADDED, None, obj, OURS) is wanted
    assert triggers(LISTED, None, obj, OURS) is wanted


@pytest.mark.parametrize(
    ("seen", "new", "needed"),
    [
        pytest.param(MODIFIED, record("reconcile", deleting=True), False, id="T-3-the-wish-says-it-all"),
        pytest.param(MODIFIED, record(last=DONE), False, id="T-3-nothing-asked"),
        pytest.param(MODIFIED, record(deleting=True), True, id="T-3-deleting"),
        pytest.param(MODIFIED, record(deleting=True, class_="seed"), False, id="T-1-not-ours"),
        pytest.param(ADDED, record(deleting=True), False, id="T-3-new"),
    ],
)
def test_the_predecessor_is_asked_for_only_where_it_matters(
    seen: EventType, new: Object, needed: bool
) -> None:
    assert needs_old(seen, new, OURS) is needed


@rule("T-5")
def test_ignoring_the_annotation_every_change_is_compared_with_its_predecessor() -> None:
    assert needs_old(MODIFIED, record(last=DONE), IGNORING)
    assert not needs_old(ADDED, record(last=DONE), IGNORING)


_annotations = st.sampled_from([None, "reconcile", "migrate", "restore", "wait-for-state", "keepalive"])
_lasts = st.sampled_from([None, DONE, "Create/Error", "Migrate/Succeeded", "Delete/Processing"])
_records = st.builds(record, _annotations, _lasts, deleting=st.booleans(), generation=st.integers(1, 3))


@rule("T-3", "T-5")
@given(st.sampled_from(EventType), _records, _records, st.sampled_from([OURS, IGNORING]))
def test_a_predecessor_that_was_not_asked_for_changes_nothing(
    seen: EventType, old: Object, new: Object, scope: Scope
) -> None:
    if not needs_old(seen, new, scope):
        assert triggers(seen, old, new, scope) == triggers(seen, None, new, scope)


@rule("T-3")
@given(_records)
def test_a_deletion_starts_nothing(obj: Object) -> None:
    assert not triggers(DELETED, obj, obj, OURS)


@rule("T-3")
@given(_records, st.sampled_from([OURS, IGNORING]))
def test_a_forgotten_predecessor_never_costs_a_run(new: Object, scope: Scope) -> None:
    if any(triggers(MODIFIED, old, new, scope) for old in (record(), new)):
        assert triggers(MODIFIED, None, new, scope)


@rule("V-1")
def test_an_object_that_replaced_another_under_its_name_is_new() -> None:
    assert triggers(MODIFIED, record(last=DONE, uid="old"), record(uid="new"), OURS)


@pytest.mark.parametrize(
    ("classes", "class_", "ours"),
    [
        pytest.param({"shoot"}, None, True, id="T-1-unset-means-shoot"),
        pytest.param({"shoot"}, "shoot", True, id="T-1-shoot"),
        pytest.param({"shoot"}, "seed", False, id="T-1-seed-is-another"),
        pytest.param({"seed", "shoot"}, "seed", True, id="T-1-one-of-several"),
        pytest.param(set(), None, True, id="T-1-no-class-configured-means-shoot"),
        pytest.param({""}, None, True, id="T-1-an-empty-class-configured-means-shoot"),
        pytest.param({""}, "garden", False, id="T-1-an-empty-class-configured-means-only-shoot"),
        pytest.param({"garden"}, None, False, id="T-1-unset-is-not-garden"),
    ],
)
def test_responsibility_by_class(classes: set[str], class_: str | None, ours: bool) -> None:
    assert responsible(record(class_=class_), Scope(LOCAL, frozenset(classes))) is ours


@rule("T-2")
def test_responsibility_by_type() -> None:
    scope = Scope(frozenset({"local", "local-ext"}), frozenset())
    assert responsible(record(type_="local"), scope)
    assert responsible(record(type_="local-ext"), scope)
    assert not responsible(record(type_="aws-route53"), scope)


@pytest.mark.parametrize(
    ("configured", "supported", "effective"),
    [
        pytest.param(
            {"seed", "shoot"}, {"garden", "seed", "shoot"}, {"seed", "shoot"}, id="P-1-all-supported"
        ),
        pytest.param({"garden", "seed"}, {"garden", "shoot"}, {"garden"}, id="P-1-some-supported"),
        pytest.param({"garden"}, {"shoot"}, {"shoot"}, id="P-1-none-supported-means-shoot"),
        pytest.param(set(), {"garden", "seed", "shoot"}, {"shoot"}, id="P-1-none-configured-means-shoot"),
    ],
)
def test_classes_are_those_configured_and_supported(
    configured: set[str], supported: set[str], effective: set[str]
) -> None:
    assert classes_for(frozenset(configured), frozenset(supported)) == effective


@pytest.mark.parametrize(
    ("obj", "late"),
    [
        pytest.param(
            record(last=DONE, timestamp="2026-09-01T10:15:32.000000001Z"),
            True,
            id="V-3-asked-after-the-answer",
        ),
        pytest.param(
            record(last=DONE, timestamp="2026-09-01T10:15:31.999999999Z"), False, id="V-3-same-second"
        ),
        pytest.param(
            record(last=DONE, timestamp="2026-09-01T10:15:31.9Z", generation=2),
            True,
            id="V-3-same-second-but-a-newer-spec",
        ),
        pytest.param(
            record(last=DONE, timestamp="2026-09-01T12:15:31+02:00"), False, id="V-3-other-time-zone"
        ),
        pytest.param(record(timestamp="2026-09-01T10:15:30Z"), True, id="V-3-never-answered"),
        pytest.param(
            record("wait-for-state", DONE, timestamp="2026-09-01T10:16:00Z"),
            False,
            id="V-3-waiting-for-state",
        ),
        pytest.param(record(last=DONE), False, id="V-3-never-asked"),
        pytest.param(record(last=DONE, timestamp="yesterday"), False, id="V-3-asked-at-no-readable-time"),
        pytest.param(
            record(last=DONE, timestamp="2026-09-01T10:15:30Z", updated="soon"),
            True,
            id="V-3-answered-at-no-readable-time",
        ),
    ],
)
def test_an_object_is_overdue_while_its_client_waits(obj: Object, late: bool) -> None:
    assert overdue(obj) is late
