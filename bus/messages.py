"""The messages on the bus."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

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
TRACE = "traceparent"

Operation = Literal["ADDED", "LISTED", "MODIFIED", "DELETED"]
"""LISTED: found by a listing after a gap; changes in between are unknown."""


class _Open(StrEnum):
    """An enumeration that newer versions may extend: a value unknown here is kept, and equals no member."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_, unknown._value_ = "UNKNOWN", value
        return unknown


class Reason(_Open):
    """Why an object is reconciled, for people. Decisions use the other fields of `Wish`."""

    EVENT = "event"
    """The object, or one that it depends on, has changed."""
    RETRY = "retry"
    """The previous run failed, or waits for something."""
    DUE = "due"
    """A scheduled requeue is due."""
    START = "start"
    """The first run since the process, or the bus, began."""
    SWEEP = "sweep"
    """The object has been unfinished for a while without a run."""
    DRIFT = "drift"
    """An owned object has changed, or may have."""
    LATE_REPORT = "late report"
    """A worker that had lost the item may have acted after its successor."""
    REPORT = "report"
    """A status has to be written."""
    QUARANTINED = "set aside before"
    """The object is taken out of quarantine."""
    ADDRESS = "address"
    """An address has become free."""
    EDGE = "edge"
    """The edge has changed what it serves."""
    UNREADABLE = "unreadable"
    """The wish could not be read."""
    GRACE_OVER = "grace is over"
    """Addresses in their grace period may be released."""


class Result(_Open):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    REPAIRED = "asserted again"
    """The check for drift succeeded; no client had asked for a run."""
    ENSURED = "ensured"
    RENEWED = "renewed"
    WRITTEN = "written"
    TOLD = "told"
    """Only an Event was written."""
    REMOVED = "removed"
    DELETED = "deleted"
    RELEASED = "let go"
    DRAINED = "drained"
    NOTHING_TO_DO = "nothing to do"
    FRESH = "fresh"
    SKIPPED = "skipped"
    NOT_OURS = "not ours"
    GONE = "gone"
    NOT_ON_THE_BUS = "not on the bus yet"
    REPLACED = "replaced"
    """Its name belongs to another object now."""
    OVERTAKEN = "overtaken"
    """A newer status has been written."""
    WAITING = "waiting"
    WAITING_FOR_STATE = "waiting for state"
    WAITING_FOR_EDGE = "waiting for the edge"
    WAITING_FOR_RELEASE = "waiting for the edge to let go"
    BLOCKED = "held back"
    NAME_TAKEN = "in the way"
    AGAIN = "again"
    ERROR = "error"
    REFUSED = "refused"
    FAILED = "failed"


class Message(BaseModel):
    model_config = ConfigDict(frozen=True)

    def encoded(self) -> bytes:
        return self.model_dump_json(exclude_defaults=True).encode()


_IMPLIED: Mapping[str, Mapping[str, bool]] = {
    Reason.EVENT: {"changed": True},
    Reason.DRIFT: {"drift": True, "verify": True},
    Reason.LATE_REPORT: {"verify": True},
    Reason.SWEEP: {"overdue": True},
    Reason.RETRY: {"reported": True},
}


_LONGEST_NOTE = 500


class Wish(Message):
    """A request to reconcile an object."""

    reason: Reason
    attempt: int = 0
    """The number of failed runs in a row before this one."""
    insist: bool = False
    """The previous run was cut off: run even if the object looks finished."""
    changed: bool = False
    """The object, or one that it depends on, has changed."""
    verify: bool = False
    """Check for drift, even if no client asks for a run."""
    drift: bool = False
    """No client has asked: repairs that others undo repeatedly are backed off."""
    overdue: bool = False
    """The object has been unfinished for a while."""
    reported: bool = False
    """An Event has reported the failure that is retried."""
    note: str = ""
    """Of a scheduled wish: what the object waits for until then, for people."""

    def __or__(self, newer: Wish) -> Wish:
        """Both wishes merged, with the newer one's reason."""
        flags = ("insist", "changed", "verify", "drift", "overdue", "reported")
        both: dict[str, Any] = {flag: getattr(self, flag) or getattr(newer, flag) for flag in flags}
        both["attempt"] = max(self.attempt, newer.attempt)
        if newer.changed:  # what failed before may succeed now
            both |= {"attempt": newer.attempt, "reported": newer.reported}
        return newer.model_copy(update=both)

    @property
    def asked(self) -> bool:
        """Whether a client asks for it: if its run is cut off, it is repeated in any case."""
        return self.insist or self.changed or self.overdue

    def insisting(self) -> Wish:
        """The wish after its run was cut off.

        A check for drift that no client asked for does not insist: repeated, it reports changes only.
        """
        only_compares = self.verify and not self.asked
        return self if only_compares else self.model_copy(update={"insist": True})

    def noted(self, note: str) -> Wish:
        """The wish with this note, instead of the one that it had."""
        return self.model_copy(update={"note": note[:_LONGEST_NOTE]})

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, fields: Any) -> Any:
        # Older versions write no more than the reason.
        if not isinstance(fields, dict):
            return fields
        return {**_IMPLIED.get(str(fields.get("reason")), {}), **fields}

    @classmethod
    def decoded(cls, data: bytes) -> Wish:
        """The wish in `data`; an unreadable one becomes a wish for a run."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            logger.error("a wish cannot be read: %s", error)
            return cls(reason=Reason.UNREADABLE, insist=True)


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
