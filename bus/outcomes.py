"""Outcomes: how a run ended, and when its object is reconciled again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bus.messages import Result, Wish


@dataclass(frozen=True)
class RequeueAfter:
    """Reconcile the object again after so many seconds."""

    wish: Wish
    after: float
    why: str = ""
    """The reason to wait until then, for people. Empty: the note of the outcome says it."""


@dataclass(frozen=True)
class Done:
    """The object is as it asks to be."""

    note: str = ""
    requeue: RequeueAfter | None = None
    waited: bool = False
    """Runs before had to wait: what they scheduled is not needed any more."""
    result: ClassVar[Result] = Result.SUCCEEDED


@dataclass(frozen=True)
class Unfinished:
    """The object waits. An event requeues it, or `requeue` at the latest."""

    note: str
    requeue: RequeueAfter | None = None
    result: ClassVar[Result] = Result.WAITING


@dataclass(frozen=True)
class Failed:
    """The run could not do what the object asks for."""

    note: str
    requeue: RequeueAfter | None = None
    result: ClassVar[Result] = Result.FAILED


@dataclass(frozen=True)
class Ignored:
    """There is nothing to do for this object, or not here."""

    note: str = ""
    requeue: RequeueAfter | None = None
    result: ClassVar[Result] = Result.NOTHING_TO_DO


Outcome = Done | Unfinished | Failed | Ignored


def backoff(attempt: int, *, first: float = 0.005, longest: float = 1000.0) -> float:
    """Exponential backoff: seconds to wait before attempt number `attempt`, counted from 1."""
    return float(min(longest, first * 2 ** min(attempt - 1, 40)))
