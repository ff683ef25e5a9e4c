"""The messages on the bus."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer, model_validator

from bus.transport.connection import Stored
from windowbox.models.objects import Object, mappings

logger = logging.getLogger(__name__)

# Headers of OBJECTS messages.
OPERATION = "Wb-Operation"
UID = "Wb-Uid"
VERSION = "Wb-Version"
PREDECESSOR = "Wb-Predecessor"
BODY = "Wb-Body"
"""`omitted` if the object was too large for the bus: it is read from the API instead."""
FORMER = "Wb-Former-Size"
"""Of a deletion: the bytes of the object's last body."""
TRACE = "traceparent"

Operation = Literal["ADDED", "LISTED", "MODIFIED", "DELETED"]
"""LISTED: found by a listing after a gap; the changes in between are unknown."""


class _Open(StrEnum):
    """An enumeration that newer versions may extend: a value unknown here is kept, and equals no member."""

    __hash__ = str.__hash__  # that of enumerations is a function of Python, called for each look into a set

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_, unknown._value_ = "UNKNOWN", value
        return unknown


class Reason(_Open):
    """Why an object is reconciled."""

    EVENT = "event"
    """The object, or one that it depends on, has changed."""
    RETRY = "retry"
    """The previous run failed, and has reported it; or it waits for something."""
    DUE = "due"
    """A scheduled requeue is due."""
    START = "start"
    """The first run since the process, or the bus, began."""
    SWEEP = "sweep"
    """The object has been unfinished for a while without a run."""
    DRIFT = "drift"
    """An owned object has changed, or may have; no client asks for a run."""
    LATE_REPORT = "late report"
    """A worker that had lost the item may have acted after its successor: check for drift."""
    CUT_OFF = "cut off"
    """The previous run was cut off: run even if the object looks finished."""
    REPORT = "report"
    """A status has to be written."""
    QUARANTINED = "set aside before"
    """The object leaves quarantine."""
    ADDRESS = "address"
    """An address has become free."""
    EDGE = "edge"
    """The edge has changed what it serves."""
    UNREADABLE = "unreadable"
    """The wish could not be read."""
    GRACE_OVER = "grace is over"
    """Addresses in their grace period may be released."""


class Result(_Open):
    """How a run ended. The note of its record says it in words."""

    SUCCEEDED = "succeeded"
    WAITING = "waiting"
    FAILED = "failed"
    NOTHING_TO_DO = "nothing to do"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        former = _RESULTS_OF_0_2.get(value) if isinstance(value, str) else None
        return cls(former) if former else super()._missing_(value)


_RESULTS_OF_0_2: Mapping[str, str] = {
    **dict.fromkeys(("asserted again", "ensured", "renewed", "written", "told", "removed"), "succeeded"),
    **dict.fromkeys(("deleted", "let go", "drained", "replaced", "overtaken", "fresh"), "succeeded"),
    **dict.fromkeys(("gone", "skipped", "not ours"), "nothing to do"),
    **dict.fromkeys(("not on the bus yet", "waiting for state", "waiting for the edge"), "waiting"),
    **dict.fromkeys(("waiting for the edge to let go", "held back", "in the way"), "waiting"),
    **dict.fromkeys(("again", "error", "refused"), "failed"),
}
"""Results in recordings of version 0.2."""


class Message(BaseModel):
    model_config = ConfigDict(frozen=True)

    def encoded(self) -> bytes:
        return self.model_dump_json(exclude_defaults=True).encode()


_FLAGS: Mapping[str, frozenset[Reason]] = {
    "insist": frozenset({Reason.CUT_OFF}),
    "changed": frozenset({Reason.EVENT}),
    "drift": frozenset({Reason.DRIFT}),
    "verify": frozenset({Reason.DRIFT, Reason.LATE_REPORT}),
    "overdue": frozenset({Reason.SWEEP}),
    "reported": frozenset({Reason.RETRY}),
}
"""The reasons that decide what a run does, as flags: this is how wishes are written to the bus."""
_DECIDING = frozenset[Reason]().union(*_FLAGS.values())

_LONGEST_NOTE = 500


class Wish(Message):
    """A request to reconcile an object."""

    reason: Reason
    """The newest reason, for people."""
    also: frozenset[Reason] = frozenset()
    """Further reasons that decide what the run does: those of the wishes merged into this one."""
    attempt: int = 0
    """The number of failed runs in a row before this one."""
    note: str = ""
    """Of a scheduled wish: what the object waits for until then, for people."""

    def _has(self, flag: str) -> bool:
        return self.reason in _FLAGS[flag] or not self.also.isdisjoint(_FLAGS[flag])

    @property
    def insist(self) -> bool:
        """The previous run was cut off: run even if the object looks finished."""
        return self._has("insist")

    @property
    def changed(self) -> bool:
        """The object, or one that it depends on, has changed."""
        return self._has("changed")

    @property
    def drift(self) -> bool:
        """No client has asked: repairs that others undo repeatedly are backed off."""
        return self._has("drift")

    @property
    def verify(self) -> bool:
        """Check for drift, even if no client asks for a run."""
        return self._has("verify")

    @property
    def overdue(self) -> bool:
        """The object has been unfinished for a while."""
        return self._has("overdue")

    @property
    def reported(self) -> bool:
        """An Event has reported the failure that is retried."""
        return self._has("reported")

    @property
    def asked(self) -> bool:
        """Whether a client asks for it: if its run is cut off, it is repeated in any case."""
        return self.insist or self.changed or self.overdue

    def __or__(self, newer: Wish) -> Wish:
        """Both wishes merged, with the newer one's reason."""
        older = {self.reason, *self.also} & _DECIDING
        attempt = max(self.attempt, newer.attempt)
        if newer.changed:  # what failed before may succeed now
            older, attempt = older - {Reason.RETRY}, newer.attempt
        return newer.model_copy(update={"also": older | newer.also - {newer.reason}, "attempt": attempt})

    def retried(self) -> Wish:
        """The same wish after a failure: a check for drift does not become a client's request."""
        return self.model_copy(update={"attempt": self.attempt + 1, "also": self.also - {Reason.CUT_OFF}})

    def insisting(self) -> Wish:
        """The wish for a run that is repeated even if the object looks finished."""
        return self.model_copy(update={"also": self.also | {Reason.CUT_OFF}})

    def after_crash(self) -> Wish:
        """The wish after its run was cut off.

        A check for drift that no client asked for does not insist: repeated, it reports changes only.
        """
        only_compares = self.verify and not self.asked
        return self if only_compares else self.insisting()

    def noted(self, note: str) -> Wish:
        """The wish with this note instead of its own."""
        return self.model_copy(update={"note": note[:_LONGEST_NOTE]})

    @model_validator(mode="before")
    @classmethod
    def _from_flags(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or fields.keys().isdisjoint(_FLAGS):
            return fields
        also, own = set(fields.get("also", ())), str(fields.get("reason"))
        for flag, reasons in _FLAGS.items():
            if fields.get(flag) and reasons.isdisjoint(also | {own}):
                also.add(min(reasons, key=lambda reason: reason is Reason.DRIFT))
        return {**fields, "also": also}

    @model_serializer
    def _as_flags(self) -> dict[str, Any]:
        flags = {flag: True for flag in _FLAGS if self._has(flag)}
        written = {"reason": self.reason.value, "attempt": self.attempt, **flags, "note": self.note}
        return {name: value for name, value in written.items() if value}

    @classmethod
    def decoded(cls, data: bytes) -> Wish:
        """The wish in `data`; an unreadable one becomes a wish for a run."""
        try:
            return _decoded_wish(data)
        except ValidationError as error:
            logger.error("a wish cannot be read: %s", error)
            return cls(reason=Reason.UNREADABLE, also=frozenset({Reason.CUT_OFF}))


@lru_cache(maxsize=256)
def _decoded_wish(data: bytes) -> Wish:
    # Most wishes are the same: an object has changed.
    return Wish.model_validate_json(data)


class StatusIntent(Message):
    """The status to write to one object."""

    uid: str
    patch: dict[str, Any]
    """A merge patch of the status. An intent with an empty one is deleted once its events are written."""
    events: tuple[EventIntent, ...] = ()
    version: str = ""
    """The resource version that the report is about: the report is valid while it is the newest."""
    conditions: tuple[str, ...] | None = None
    """The types of the reporter's own conditions; the patch repeats others as they were found."""
    shown: bool = False
    """The object has the status already: only the events have to be written."""
    memo: dict[str, Any] = {}
    """State for the next run; never written to the cluster."""
    orphans: tuple[dict[str, Any], ...] = ()
    """The last versions of deleted objects of this name whose owned objects have to be removed."""

    def patch_of(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """The patch for an object with this status: others may have written conditions meanwhile."""
        listed = self.patch.get("conditions")
        if self.conditions is None or not isinstance(listed, list):
            return self.patch
        ours = {one.get("type"): one for one in listed if one.get("type") in self.conditions}
        kept = [ours.pop(one.get("type"), one) for one in mappings(status.get("conditions"))]
        return {**self.patch, "conditions": [*kept, *ours.values()]}


class EventIntent(Message):
    """An Event of an object, written once."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


class Read(Message):
    """A message that a run read."""

    stream: str
    subject: str
    sequence: int
    """0 if there was none."""


class Call(Message):
    """A call to the outside, and its answer."""

    door: str
    request: Any
    answer: Any = None
    error: dict[str, Any] | None = None
    """The error it raised; CancelledError if a deadline ended it."""
    effect: bool = False
    """Whether the call writes; a replay compares such calls."""
    at_once: int = 0
    """Calls with the same number other than 0 ran concurrently; they are in the order of their ends."""


class RunRecord(Message):
    """The journal record of one run."""

    pool: str
    key: str
    wish: Wish
    wish_sequence: int
    delivery: int
    waited: float = 0.0
    """Seconds from the wish to the start."""
    started: datetime
    seconds: float
    process: str
    outcome: Result
    reads: list[Read] = []
    calls: list[Call] = []
    calls_omitted: bool = False
    """The record would have been too large for the server."""
    note: str = ""
    trace: str = ""


class ReviewRecord(Message):
    """A webhook's decision about an object that is created or updated."""

    webhook: str
    key: str
    uid: str
    """Of the request."""
    operation: str
    dry_run: bool = False
    decided: datetime
    seconds: float
    process: str
    outcome: str
    """`allowed`, `patched`, `denied` or `failed`."""
    message: str = ""
    patch: list[dict[str, Any]] = []
    request: str = ""
    """The request, compressed and without secrets; empty if it was too large."""


class Announcement:
    """A message of OBJECTS: one version of one object, or its deletion."""

    __slots__ = ("_object", "stored")

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self._object: Object | None = None

    @property
    def operation(self) -> str:
        return self.stored.headers[OPERATION]

    @property
    def uid(self) -> str:
        return self.stored.headers[UID]

    @property
    def version(self) -> str:
        return self.stored.headers[VERSION]

    @property
    def predecessor(self) -> int:
        return int(self.stored.headers.get(PREDECESSOR, 0))

    @property
    def trace(self) -> str:
        return self.stored.headers.get(TRACE, "")

    @property
    def omitted(self) -> bool:
        return self.stored.headers.get(BODY) == "omitted"

    @property
    def gone(self) -> bool:
        return self.operation == "DELETED"

    def object(self) -> Object:
        if self._object is None:
            self._object = Object(orjson.loads(self.stored.data) if self.stored.data else {})
        return self._object
