"""Predicates: which changes of an extension object trigger a run. Rules T-1 to T-5, P-1 and V-3."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from bus.messages import Wish
from windowbox.models.extensions import OPERATION, TIMESTAMP, instant
from windowbox.models.objects import Object

SHOOT_CLASS = frozenset({"shoot"})
REQUESTS = frozenset({"reconcile", "migrate", "restore"})
"""Values of the operation annotation that trigger a run; all others belong to other controllers."""


class EventType(Enum):
    """The event type of an announcement."""

    ADDED = auto()
    LISTED = auto()
    """Found by a listing after a gap. The change is unknown, so it counts as new."""
    MODIFIED = auto()
    DELETED = auto()


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind are served, and whether the operation annotation counts."""

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

    `old` matters only if `needs_old`. If it is needed and unknown, the answer is yes: a needless run does no
    harm, a missing one does.
    """
    if not responsible(new, scope):
        return False
    if event is EventType.MODIFIED and old is not None and old.uid != new.uid:
        event = EventType.ADDED  # another object has the name now
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
    """Whether `triggers` compares `new` with its predecessor."""
    if event is not EventType.MODIFIED or not responsible(new, scope):
        return False
    return scope.ignore_operation_annotation or (new.deleting and not _requests_operation(new))


def wants_run(obj: Object) -> bool:
    """Whether `obj` needs a run, judged without its predecessor."""
    return _requests_operation(obj) or obj.deleting or obj.last_operation.get("state") != "Succeeded"


def needs_run(obj: Object, wish: Wish, scope: Scope) -> bool:
    """Whether `obj` needs a run that calls the actuator, rather than a check for drift."""
    if wish.insist or wants_run(obj) or overdue(obj):
        return True
    if not scope.ignore_operation_annotation:
        return False
    # Without the annotation, an event is a new generation, or a change of the Shoot.
    return wish.changed or obj.status.get("observedGeneration") != obj.generation


def overdue(obj: Object) -> bool:
    """Whether the client's timestamp is later than the last report: it still waits for one.

    This is the client's own test, and a little more. It finds requests whose annotation was removed by a
    process that then crashed. A malformed timestamp is not overdue: no run would correct it.
    """
    if obj.annotations.get(OPERATION) == "wait-for-state":
        return False
    requested_at = instant(obj.annotations.get(TIMESTAMP))
    if requested_at is None:
        return False
    answered = instant(obj.last_operation.get("lastUpdateTime"))
    if answered is None or requested_at.replace(microsecond=0) > answered:
        return True
    # Times have a resolution of one second: within it, the generation decides.
    unseen = obj.status.get("observedGeneration") != obj.generation
    return unseen and requested_at.replace(microsecond=0) == answered


def only_annotated(obj: Object) -> bool:
    """Whether the operation annotation alone asks for a reconcile: removing it would lose the request."""
    annotated = obj.annotations.get(OPERATION) == "reconcile"
    return (
        annotated and not obj.deleting and obj.last_operation.get("state") == "Succeeded" and not overdue(obj)
    )


def asked(obj: Object) -> bool:
    """Whether a client asks for a run, or still waits for the report of one."""
    return OPERATION in obj.annotations or overdue(obj)


def _effective(classes: frozenset[str]) -> frozenset[str]:
    return SHOOT_CLASS if classes <= {""} else classes


def _requests_operation(obj: Object) -> bool:
    return obj.annotations.get(OPERATION) in REQUESTS
