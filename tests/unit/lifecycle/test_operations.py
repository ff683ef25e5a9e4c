from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lifecycleobjects import FINALIZER, record
from tests.support.rules import rule
from windowbox.models.objects import Object, merge
from workers.core.lifecycle.operations import Flow, Operation, begin_patch, finish_patch, flow, operation

C, R, D, M, S = Operation
DONE = "Create/Succeeded"


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


@rule("O-2", "V-7", "N-1", "V-2")
def test_a_run_begins_with_one_locked_patch_for_finalizer_and_annotation() -> None:
    obj = record("reconcile", DONE, finalizers=("other/one",), timestamp="2026-09-01T10:15:30Z")
    assert begin_patch(obj, FINALIZER, Flow.RECONCILE) == {
        "metadata": {
            "uid": "5b0c7e52",
            "resourceVersion": "77",
            "finalizers": ["other/one", "extensions.gardener.cloud/dnsrecord"],
            "annotations": {"gardener.cloud/operation": None},
        }
    }


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
def test_what_a_run_writes_first(obj: Object, wanted: Flow, changed: set[str]) -> None:
    patch = begin_patch(obj, FINALIZER, wanted)
    found = set(patch["metadata"]) - {"uid", "resourceVersion"} if patch else set()
    assert found == changed


@rule("N-1", "V-7")
def test_a_deletion_ends_with_letting_go_of_our_finalizer_alone() -> None:
    obj = record(deleting=True, finalizers=("other/one", FINALIZER))
    assert finish_patch(obj, FINALIZER, Flow.DELETE) == {
        "metadata": {"uid": "5b0c7e52", "resourceVersion": "77", "finalizers": ["other/one"]}
    }


@rule("N-2")
def test_a_migration_ends_with_all_finalizers_and_the_annotation_off() -> None:
    obj = record("migrate", finalizers=("other/one", FINALIZER))
    assert finish_patch(obj, FINALIZER, Flow.MIGRATE) == {
        "metadata": {
            "uid": "5b0c7e52",
            "resourceVersion": "77",
            "finalizers": None,
            "annotations": {"gardener.cloud/operation": None},
        }
    }


@rule("N-1", "N-2")
def test_an_infrastructure_keeps_the_finalizers_of_others_when_it_migrates() -> None:
    obj = record("migrate", finalizers=("other/one", FINALIZER))
    assert finish_patch(obj, FINALIZER, Flow.MIGRATE, strips_all_finalizers=False) == {
        "metadata": {
            "uid": "5b0c7e52",
            "resourceVersion": "77",
            "finalizers": ["other/one"],
            "annotations": {"gardener.cloud/operation": None},
        }
    }
    alone = record(finalizers=("other/one",))
    assert finish_patch(alone, FINALIZER, Flow.MIGRATE, strips_all_finalizers=False) is None


@pytest.mark.parametrize(
    ("obj", "wanted", "patch"),
    [
        pytest.param(
            ours("restore"),
            Flow.RESTORE,
            {
                "metadata": {
                    "uid": "5b0c7e52",
                    "resourceVersion": "77",
                    "annotations": {"gardener.cloud/operation": None},
                }
            },
            id="O-2-restore-takes-the-wish-off",
        ),
        pytest.param(ours(), Flow.RESTORE, None, id="O-2-restore-broke-off-after-that"),
        pytest.param(ours("reconcile"), Flow.RESTORE, None, id="O-2-a-new-wish-stays"),
        pytest.param(ours(last=DONE), Flow.RECONCILE, None, id="O-2-reconcile-has-nothing-left"),
        pytest.param(record(deleting=True), Flow.DELETE, None, id="N-1-already-let-go"),
        pytest.param(record(), Flow.MIGRATE, None, id="N-2-already-handed-over"),
    ],
)
def test_what_a_run_writes_last(obj: Object, wanted: Flow, patch: dict[str, Any] | None) -> None:
    assert finish_patch(obj, FINALIZER, wanted) == patch


_annotations = st.sampled_from([None, "reconcile", "migrate", "restore", "wait-for-state", "keepalive"])
_lasts = st.sampled_from([None, DONE, "Create/Error", "Migrate/Error", "Migrate/Succeeded", "Restore/Error"])
_finalizers = st.sampled_from([(), (FINALIZER,), ("other/one",), ("other/one", FINALIZER)])
_records = st.builds(record, _annotations, _lasts, deleting=st.booleans(), finalizers=_finalizers)


@rule("O-2")
@given(_records)
def test_beginning_twice_writes_once(obj: Object) -> None:
    wanted = flow(obj, FINALIZER)
    begun = patched(obj, begin_patch(obj, FINALIZER, wanted))
    assert begin_patch(begun, FINALIZER, wanted) is None


@rule("U-4")
@given(_records)
def test_beginning_changes_neither_operation_nor_flow(obj: Object) -> None:
    begun = patched(obj, begin_patch(obj, FINALIZER, flow(obj, FINALIZER)))
    assert operation(begun) is operation(obj)
    assert flow(begun, FINALIZER) is flow(obj, FINALIZER)


@rule("V-7")
@given(_records)
def test_what_is_deleted_is_let_go_and_then_left_alone(obj: Object) -> None:
    if flow(obj, FINALIZER) is Flow.DELETE:
        let_go = patched(obj, finish_patch(obj, FINALIZER, Flow.DELETE))
        assert flow(let_go, FINALIZER) is Flow.SKIP
