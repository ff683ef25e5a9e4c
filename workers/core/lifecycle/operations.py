"""The operation annotation `gardener.cloud/operation` and the finalizer: rules O-1 to O-6, N-1, N-2."""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Any

from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object

Patch = dict[str, Any]
"""A JSON merge patch: None removes a field, lists are replaced as a whole."""


class Operation(StrEnum):
    """The values of `lastOperation.type`."""

    CREATE = "Create"
    RECONCILE = "Reconcile"
    DELETE = "Delete"
    MIGRATE = "Migrate"
    RESTORE = "Restore"


class Flow(Enum):
    """The flow of a run."""

    SKIP = auto()
    """Nothing: our finalizer is not on a deleted object, or the object was migrated."""
    WAIT = auto()
    """Nothing yet: the client is still restoring the saved state."""
    RECONCILE = auto()
    DELETE = auto()
    MIGRATE = auto()
    RESTORE = auto()


_REPEATED = (Operation.CREATE, Operation.MIGRATE, Operation.RESTORE)
"""Types that a retry keeps until it succeeds; all others become Reconcile."""

_ANNOTATIONS = {Flow.MIGRATE: "migrate", Flow.RESTORE: "restore"}
"""The annotation stays during these, so that it survives a crash."""


def operation(obj: Object) -> Operation:
    """The operation that `obj` asks for: the first matching case of the contract."""
    annotation = obj.annotations.get(OPERATION)
    last = obj.last_operation
    if annotation == "migrate":
        return Operation.MIGRATE
    if obj.deleting:
        return Operation.DELETE
    if annotation == "restore":
        return Operation.RESTORE
    if not last:
        return Operation.CREATE
    if last.get("state") != "Succeeded" and last.get("type") in _REPEATED:
        return Operation(last["type"])
    return Operation.RECONCILE


def flow(obj: Object, finalizer: str, *, migrates: bool = True) -> Flow:
    """The flow for `obj`; `finalizer` is ours."""
    if obj.annotations.get(OPERATION) == "wait-for-state":
        return Flow.WAIT
    if not migrates:
        if not obj.deleting:
            return Flow.RECONCILE
        return Flow.DELETE if finalizer in obj.finalizers else Flow.SKIP
    wanted = operation(obj)
    if wanted is Operation.MIGRATE:
        return Flow.MIGRATE
    if wanted is Operation.RESTORE:
        return Flow.RESTORE
    if (obj.last_operation.get("type"), obj.last_operation.get("state")) == (Operation.MIGRATE, "Succeeded"):
        return Flow.SKIP
    if wanted is Operation.DELETE:
        return Flow.DELETE if finalizer in obj.finalizers else Flow.SKIP
    return Flow.RECONCILE


def begin_patch(obj: Object, finalizer: str, flow: Flow) -> Patch | None:
    """The patch before acting, or None: add the finalizer, and remove the annotation `reconcile`.

    One patch for both, and only for the resource version that was read: it replaces the list of finalizers,
    and must not remove a newer annotation. With `Flow.SKIP` it removes the annotation only.
    """
    change: Patch = {}
    if flow in (Flow.RECONCILE, Flow.RESTORE) and finalizer not in obj.finalizers:
        change["finalizers"] = [*obj.finalizers, finalizer]
    if obj.annotations.get(OPERATION) == "reconcile":
        change["annotations"] = {OPERATION: None}
    return _locked(obj, change) if change else None


def finish_patch(
    obj: Object, finalizer: str, flow: Flow, *, strips_all_finalizers: bool = True
) -> Patch | None:
    """The patch after the success was reported, or None. `obj`: the newest version.

    With `strips_all_finalizers`, a migration removes the finalizers of others, too.
    """
    change: Patch = {}
    if flow is Flow.DELETE and finalizer in obj.finalizers:
        change["finalizers"] = [other for other in obj.finalizers if other != finalizer]
    if flow is Flow.MIGRATE:
        left = [] if strips_all_finalizers else [other for other in obj.finalizers if other != finalizer]
        if list(obj.finalizers) != left:
            change["finalizers"] = left or None
    # Any other value is a new request, and stays.
    if flow in _ANNOTATIONS and obj.annotations.get(OPERATION) == _ANNOTATIONS[flow]:
        change["annotations"] = {OPERATION: None}
    # Optimistic concurrency: an operation that a client has requested since must stay.
    return _locked(obj, change) if change else None


def _locked(obj: Object, change: Patch) -> Patch:
    # The uid excludes a later object of the same name; the resource version excludes concurrent writes.
    return {"metadata": {"uid": obj.uid, "resourceVersion": obj.resource_version, **change}}
