from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support.lifecycleobjects import DONE, FINALIZER, record, records
from tests.support.rules import rule
from windowbox.models.objects import Object, merge
from workers.core.lifecycle.operations import Flow, Operation, begin_patch, finish_patch, flow, operation

C, R, D, M, S = Operation


def ours(annotation: str | None = None, last: str | None = None, deleting: bool = False) -> Object:
    return record(annotation, last, deleting=deleting, finalizers=(FINALIZER,))


@pytest.mark.parametrize(
    ("obj", "type_", "wanted"),
    [
        pytest.param(ours(), C, Flow.RECONCILE, id="C.6-1+O-4-new"),
        pytest.param(ours(last="Create/Error"), C, Flow.RECONCILE, id="C.6-2+U-4-first-run-failed"),
        pytest.param(ours(last=DONE), R, Flow.RECONCILE, id="C.6-3-created"),
        pytest.param(ours(last="Reconcile/Error"), R, Flow.RECONCILE, id="C.6-4-later-run-failed"),
        pytest.param(ours(last="Delete/Error"), R, Flow.RECONCILE, id="C.6-5-deletion-failed-not-deleting"),
        pytest.param(ours(last="Migrate/Error"), M, Flow.MIGRATE, id="C.6-6-migration-failed"),
        pytest.param(ours(last="Migrate/Succeeded"), R, Flow.SKIP, id="C.6-7+O-5-migrated"),
        pytest.param(ours(None, "Migrate/Succeeded", True), D, Flow.SKIP, id="C.6-8+O-5-migrated-deleting"),
        pytest.param(ours("restore", "Migrate/Succeeded"), S, Flow.RESTORE, id="C.6-9-restore"),
        pytest.param(ours("restore", DONE, True), D, Flow.DELETE, id="C.6-10+O-6-restore-of-deleting"),
        pytest.param(ours("migrate", None, True), M, Flow.MIGRATE, id="C.6-11+O-6-migrate-new-deleting"),
        pytest.param(
            ours("migrate", "Delete/Error", True), M, Flow.MIGRATE, id="C.6-11-migrate-beats-delete"
        ),
        pytest.param(ours("migrate", "Migrate/Succeeded"), M, Flow.MIGRATE, id="C.6-12-migrate-again"),
        pytest.param(ours(last="Restore/Processing"), S, Flow.RESTORE, id="C.6-13-restore-broke-off"),
        pytest.param(ours(None, DONE, True), D, Flow.DELETE, id="C.6-14+F-3-delete"),
        pytest.param(ours("reconcile", "Migrate/Succeeded"), R, Flow.SKIP, id="O-5-reconcile-of-migrated"),
        pytest.param(ours("keepalive", DONE), R, Flow.RECONCILE, id="O-4-word-of-another-controller"),
        pytest.param(ours("wait-for-state", None), C, Flow.WAIT, id="O-1-waiting-for-state"),
        pytest.param(ours("wait-for-state", DONE, True), D, Flow.WAIT, id="O-1-waiting-even-when-deleting"),
        pytest.param(record(last=DONE, deleting=True), D, Flow.SKIP, id="O-6-deleting-without-our-finalizer"),
        pytest.param(record("migrate"), M, Flow.MIGRATE, id="O-6-migrate-without-our-finalizer"),
    ],
)
def test_operation_and_flow(obj: Object, type_: Operation, wanted: Flow) -> None:
    assert operation(obj) is type_
    assert flow(obj, FINALIZER) is wanted


@rule("S-3")
def test_runs_are_called_as_the_api_calls_them() -> None:
    assert [str(type_) for type_ in Operation] == ["Create", "Reconcile", "Delete", "Migrate", "Restore"]


def patched(obj: Object, patch: dict[str, Any] | None) -> Object:
    return Object(merge(obj.raw, patch or {}))


HEAD = {"uid": "5b0c7e52", "resourceVersion": "77"}
"""Locks each patch to the version that was read."""
OFF = {"annotations": {"gardener.cloud/operation": None}}


@rule("O-2", "V-7", "N-1", "V-2")
def test_a_run_begins_with_one_locked_patch_for_finalizer_and_annotation() -> None:
    obj = record("reconcile", DONE, finalizers=("other/one",), timestamp="2026-09-01T10:15:30Z")
    wanted = {"metadata": {**HEAD, "finalizers": ["other/one", FINALIZER], **OFF}}
    assert begin_patch(obj, FINALIZER, Flow.RECONCILE) == wanted


@pytest.mark.parametrize(
    ("obj", "wanted", "changed"),
    [
        pytest.param(ours(last=DONE), Flow.RECONCILE, set(), id="V-7-nothing-to-write"),
        pytest.param(record(), Flow.RECONCILE, {"finalizers"}, id="V-7-hold-on"),
        pytest.param(record("restore"), Flow.RESTORE, {"finalizers"}, id="O-2-restore-stays"),
        pytest.param(record("migrate"), Flow.MIGRATE, set(), id="O-2-migrate-stays"),
        pytest.param(record("reconcile"), Flow.MIGRATE, {"annotations"}, id="O-2-migration-begun-earlier"),
        pytest.param(record("reconcile"), Flow.DELETE, {"annotations"}, id="O-2-delete"),
        pytest.param(record("reconcile"), Flow.SKIP, {"annotations"}, id="O-2+T-9-even-when-left-alone"),
        pytest.param(record("wait-for-state"), Flow.WAIT, set(), id="O-1-nothing"),
        pytest.param(record("keepalive"), Flow.DELETE, set(), id="O-2-word-of-another-controller-stays"),
    ],
)
def test_the_first_patch_of_a_run(obj: Object, wanted: Flow, changed: set[str]) -> None:
    patch = begin_patch(obj, FINALIZER, wanted)
    assert (set(patch["metadata"]) - HEAD.keys() if patch else set()) == changed


BOTH = ("other/one", FINALIZER)
GOING, LEAVING = record(deleting=True, finalizers=BOTH), record("migrate", finalizers=BOTH)
OTHERS = record(finalizers=("other/one",))


@pytest.mark.parametrize(
    ("obj", "wanted", "strips", "change"),
    [
        pytest.param(GOING, Flow.DELETE, True, {"finalizers": ["other/one"]}, id="N-1+V-7-deleted"),
        pytest.param(LEAVING, Flow.MIGRATE, True, {"finalizers": None, **OFF}, id="N-2-all-finalizers"),
        pytest.param(LEAVING, Flow.MIGRATE, False, {"finalizers": ["other/one"], **OFF}, id="N-1+N-2-ours"),
        pytest.param(OTHERS, Flow.MIGRATE, False, None, id="N-1+N-2-of-others-alone"),
        pytest.param(ours("restore"), Flow.RESTORE, True, OFF, id="O-2-restored"),
        pytest.param(ours(), Flow.RESTORE, True, None, id="O-2-restore-broke-off-after-that"),
        pytest.param(ours("reconcile"), Flow.RESTORE, True, None, id="O-2-a-new-wish-stays"),
        pytest.param(ours(last=DONE), Flow.RECONCILE, True, None, id="O-2-reconcile-has-nothing-left"),
        pytest.param(record(deleting=True), Flow.DELETE, True, None, id="N-1-already-removed"),
        pytest.param(record(), Flow.MIGRATE, True, None, id="N-2-already-migrated"),
    ],
)
def test_the_last_patch_of_a_run(
    obj: Object, wanted: Flow, strips: bool, change: dict[str, Any] | None
) -> None:
    patch = finish_patch(obj, FINALIZER, wanted, strips_all_finalizers=strips)
    assert patch == (None if change is None else {"metadata": {**HEAD, **change}})


@rule("O-2", "U-4")
@given(records)
def test_beginning_twice_writes_once_and_changes_no_operation(obj: Object) -> None:
    wanted = flow(obj, FINALIZER)
    begun = patched(obj, begin_patch(obj, FINALIZER, wanted))
    assert begin_patch(begun, FINALIZER, wanted) is None
    assert operation(begun) is operation(obj)
    assert flow(begun, FINALIZER) is wanted


@rule("V-7")
@given(records)
def test_a_deleted_object_is_released_and_then_left_alone(obj: Object) -> None:
    if flow(obj, FINALIZER) is Flow.DELETE:
        released = patched(obj, finish_patch(obj, FINALIZER, Flow.DELETE))
        assert flow(released, FINALIZER) is Flow.SKIP
