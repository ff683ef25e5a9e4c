"""Predicates: which changes of an extension object trigger a run. Rules T-1 to T-5, P-1 and V-3."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from windowbox.models.extensions import OPERATION, TIMESTAMP, instant
from windowbox.models.objects import Object

SHOOT_CLASS = frozenset({"shoot"})
REQUESTS = frozenset({"reconcile", "migrate", "restore"})
"""Values of the operation annotation that ask for a run; all others are somebody else's."""


class EventType(Enum):
    """How a version of an object came to our notice."""

    ADDED = auto()
    LISTED = auto()
    """Found in a listing after a gap. What changed is unknown, so it is judged as if it were new."""
    MODIFIED = auto()
    DELETED = auto()


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind are ours, and whether they say themselves when to run."""

    types: frozenset[str]
    classes: frozenset[str]
    ignore_operation_annotation: bool = False


def classes_for(configured: frozenset[str], supported: frozenset[str]) -> frozenset[str]:
    """The classes to serve: those configured, as far as the kind supports them."""
    return _effective(configured) & supported or SHOOT_CLASS


def responsible(obj: Object, scope: Scope) -> bool:
    class_ = obj.spec.get("class") or "shoot"
    return class_ in _effective(scope.classes) and obj.spec.get("type") in scope.types


def triggers(event: EventType, old: Object | None, new: Object, scope: Scope) -> bool:
    """Whether the change from `old` to `new` starts a run.

    `old` matters only where `needs_old` says so. Where it does and is forgotten, the answer is yes:
    one run too many does no harm, one too few does.
    """
    if not responsible(new, scope):
        return False
    if event is EventType.MODIFIED and old is not None and old.uid != new.uid:
        event = EventType.ADDED  # the name was given to another object while nobody looked
    if scope.ignore_operation_annotation:
        return event is not EventType.MODIFIED or old is None or old.generation != new.generation
    match event:
        case EventType.ADDED:
            return wants_run(new)
        case EventType.LISTED:
            return wants_run(new) or overdue(new)
        case EventType.MODIFIED:
            return _requests_operation(new) or (new.deleting and (old is None or old.status == new.status))
        case EventType.DELETED:
            return False


def needs_old(event: EventType, new: Object, scope: Scope) -> bool:
    """Whether `triggers` wants to compare `new` with its predecessor."""
    if event is not EventType.MODIFIED or not responsible(new, scope):
        return False
    return scope.ignore_operation_annotation or (new.deleting and not _requests_operation(new))


def wants_run(obj: Object) -> bool:
    """Whether `obj`, as it is, has something left to do: the rule for objects seen for the first time."""
    return _requests_operation(obj) or obj.deleting or obj.last_operation.get("state") != "Succeeded"


def overdue(obj: Object) -> bool:
    """Whether the client asked later than we last reported, so that it still waits for an answer.

    This is the client's own test, and a little more. It finds wishes that were taken off the object (the
    annotation) by somebody who then died. A timestamp that nobody can read is not overdue: no run would ever
    cure it.
    """
    if obj.annotations.get(OPERATION) == "wait-for-state":
        return False
    requested_at = instant(obj.annotations.get(TIMESTAMP))
    if requested_at is None:
        return False
    answered = instant(obj.last_operation.get("lastUpdateTime"))
    if answered is None or requested_at.replace(microsecond=0) > answered:
        return True
    # Within one second the times do not tell what was first; that the spec is a later one does.
    unseen = obj.status.get("observedGeneration") != obj.generation
    return unseen and requested_at.replace(microsecond=0) == answered


def only_annotated(obj: Object) -> bool:
    """Whether nothing but the operation annotation asks for a reconcile: without it, nobody would know."""
    annotated = obj.annotations.get(OPERATION) == "reconcile"
    return (
        annotated and not obj.deleting and obj.last_operation.get("state") == "Succeeded" and not overdue(obj)
    )


def asked(obj: Object) -> bool:
    """Whether a client asks for a run, or still waits for the answer of one."""
    return OPERATION in obj.annotations or overdue(obj)


def _effective(classes: frozenset[str]) -> frozenset[str]:
    return SHOOT_CLASS if classes <= {""} else classes


def _requests_operation(obj: Object) -> bool:
    return obj.annotations.get(OPERATION) in REQUESTS
