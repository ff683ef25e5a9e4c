"""Which operation an object needs, its finalizer and annotation in one patch: rules O-1 to O-6, N-1, N-2."""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Any

from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object

Patch = dict[str, Any]
"""A JSON merge patch: None takes a field away, lists are replaced as a whole."""


class Operation(StrEnum):
    """What a run is called in `lastOperation.type`."""

    CREATE = "Create"
    RECONCILE = "Reconcile"
    DELETE = "Delete"
    MIGRATE = "Migrate"
    RESTORE = "Restore"


class Flow(Enum):
    """What a run does."""

    SKIP = auto()
    """Nothing: the object is no longer ours, or was migrated away."""
    WAIT = auto()
    """Nothing yet: the client is still putting the saved state back."""
    RECONCILE = auto()
    DELETE = auto()
    MIGRATE = auto()
    RESTORE = auto()


_REPEATED = (Operation.CREATE, Operation.MIGRATE, Operation.RESTORE)
"""These go on under their own name until they succeed, all others as Reconcile."""

_ANNOTATIONS = {Flow.MIGRATE: "migrate", Flow.RESTORE: "restore"}
"""The annotation stays while these run, so that a crash in between finds it again."""


def operation(obj: Object) -> Operation:
    """The operation that `obj` asks for. The first of the contract's cases that fits wins."""
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
    """What to do with `obj`, of which we hold on with `finalizer`."""
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
    """What to write before acting, or None: hold on to the object, and take the wish off it.

    Both in one patch, and only onto the very version that was read: a list of finalizers replaces the
    one that is there, and the wish that is taken off must be the one that was understood. With
    `Flow.SKIP`, the patch of an object that is left alone otherwise.
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
    """What to write after everything has succeeded and was reported, or None. `obj`: the newest version.

    With `strips_all_finalizers`, an object that is handed over loses the finalizers of others too.
    """
    match flow:
        case Flow.DELETE if finalizer in obj.finalizers:
            return _locked(obj, {"finalizers": [f for f in obj.finalizers if f != finalizer]})
        case Flow.MIGRATE | Flow.RESTORE:
            return _migrate_or_restore_patch(obj, finalizer, flow, strips_all_finalizers)
        case _:
            return None


def _migrate_or_restore_patch(
    obj: Object, finalizer: str, flow: Flow, strips_all_finalizers: bool
) -> Patch | None:
    change: Patch = {}
    left = [] if strips_all_finalizers else [other for other in obj.finalizers if other != finalizer]
    if flow is Flow.MIGRATE and list(obj.finalizers) != left:
        change["finalizers"] = left or None
    # Another word than the one we served is a new wish of the client, and stays.
    if obj.annotations.get(OPERATION) == _ANNOTATIONS[flow]:
        change["annotations"] = {OPERATION: None}
    # Onto the version that was read: an operation that a client has asked for since must stay.
    return _locked(obj, change) if change else None


def _locked(obj: Object, change: Patch) -> Patch:
    # The uid tells our object from a later one of the same name, the version tells what we have read.
    return {"metadata": {"uid": obj.uid, "resourceVersion": obj.resource_version, **change}}
