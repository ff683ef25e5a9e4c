"""Whether an object is well, by what its status says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple

from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import SERVICES, ObjectRef

State = Literal["well", "busy", "failed", "degraded", "leaving"]

_GOOD = re.compile(r".*(Healthy|Ready|Serving|Available|Applied)")
"""Types of conditions that are good when they are true. Others, such as MemoryPressure, are not looked at."""
_LONGEST = 500


class Health(NamedTuple):
    """The state of an object, and why it is so."""

    state: State
    why: str = ""
    since: float = 0.0
    """0 if the object does not say it."""


WELL, BUSY = Health("well"), Health("busy")
"""Most objects have one of these: they are kept once."""


def health(ref: ObjectRef, object: Object) -> Health | None:
    """The health of an object; None for Services that are no load balancers."""
    if ref.kind == SERVICES.id and object.spec.get("type") != "LoadBalancer":
        return None
    last = object.last_operation
    if object.deleting:
        held = ", ".join(map(str, object.finalizers))
        why = _error(object) or (f"its finalizers are still there: {held}" if held else "it is being deleted")
        return Health("leaving", why[:_LONGEST], _time(object.metadata.get("deletionTimestamp")))
    if error := _error(object):
        return Health("failed", error, _time(last.get("lastUpdateTime")))
    for condition in _false(object):
        why = str(condition.get("message") or condition.get("reason") or "")
        title = f"{condition['type']} is false" + (f": {why}" if why else "")
        return Health("degraded", title[:_LONGEST], _time(condition.get("lastTransitionTime")))
    return BUSY if last.get("state") == "Processing" else WELL


def _error(object: Object) -> str:
    last, failure = object.last_operation, mapping(object.status.get("lastError"))
    if last.get("state") in ("Error", "Failed"):
        words = failure.get("description") or last.get("description") or last["state"]
    else:
        words = failure.get("description") or ""
    return str(words)[:_LONGEST]


def _false(object: Object) -> Iterator[Any]:
    for condition in mappings(object.status.get("conditions")):
        if condition.get("status") == "False" and _GOOD.fullmatch(str(condition.get("type"))):
            yield condition


def _time(text: object) -> float:
    """Seconds since 1970; 0 for what is no time."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
