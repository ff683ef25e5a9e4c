"""What is said on the bus."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from bus.connection import Stored
from windowbox.models.objects import Object

logger = logging.getLogger(__name__)

# Headers of OBJECTS messages.
OPERATION = "Wb-Operation"
UID = "Wb-Uid"
VERSION = "Wb-Version"
PREDECESSOR = "Wb-Predecessor"
BODY = "Wb-Body"
"""`omitted` where the object was too large for the server: it is read from the API instead."""
TRACE = "traceparent"

Operation = Literal["ADDED", "LISTED", "MODIFIED", "DELETED"]
"""LISTED: found in a listing after a gap, so that what happened in between is unknown."""


class Message(BaseModel):
    model_config = ConfigDict(frozen=True)

    def encoded(self) -> bytes:
        return self.model_dump_json(exclude_defaults=True).encode()


class Wish(Message):
    """Look at this object again. A newer wish replaces an older one."""

    reason: str
    """`event`, `retry`, `sweep`, `drift`, `due`, `late report`: mostly for people; some matter to runs."""
    attempt: int = 0
    """How many runs have failed in a row before this one."""
    insist: bool = False
    """The run before was cut off: run even if the object looks as if nothing were left to do."""

    @classmethod
    def decoded(cls, data: bytes) -> Wish:
        """The wish that `data` tells. One that nobody can read still asks for a run."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            logger.error("a wish cannot be read: %s", error)
            return cls(reason="unreadable", insist=True)


class StatusIntent(Message):
    """The status that one object ought to show."""

    uid: str
    patch: dict[str, Any]
    """A merge patch of the status. An empty one only carries events, and is forgotten once they are told."""
    events: tuple[EventIntent, ...] = ()
    version: str = ""
    """The version of the object that the report is about: while it is the newest, the report fits."""
    shown: bool = False
    """The object shows the status already: only the events are to be told."""
    memo: dict[str, Any] = {}
    """What the next run should know of this one. It is never written to the cluster."""


class EventIntent(Message):
    """What a person who looks at the object should be told once."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


class Read(Message):
    """A message that a run looked at."""

    stream: str
    subject: str
    sequence: int
    """0 if there was none."""


class Call(Message):
    """A call at an outside door, and what came back."""

    door: str
    request: Any
    answer: Any = None
    error: dict[str, Any] | None = None
    """What it raised; the type CancelledError where a deadline cut it short."""
    effect: bool = False
    """Whether the call changes the world; such calls are what a replay compares."""


class RunRecord(Message):
    """The story of one run."""

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
    outcome: str
    reads: list[Read] = []
    calls: list[Call] = []
    calls_omitted: bool = False
    """The record would have been too large for the server."""
    note: str = ""
    trace: str = ""


class Announcement:
    """A message of OBJECTS: one version of one object, or its end."""

    __slots__ = ("stored",)

    def __init__(self, stored: Stored) -> None:
        self.stored = stored

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
        return Object(orjson.loads(self.stored.data) if self.stored.data else {})
