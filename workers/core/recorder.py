"""The recorder: every outside call of a run, noted so that the run can be replayed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from windowbox import errors
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef

T = TypeVar("T")

_GROUP: ContextVar[int] = ContextVar("calls at once", default=0)
_NUMBERS = itertools.count(1)

Json = Any


class Recorder(Protocol):
    """The world as one run sees it: the real one, or one simulated from a recording."""

    async def read(self, ref: ObjectRef) -> Object | None:
        """The object as the bus knows it; None if it is gone."""

    async def call(
        self, door: str, request: Json, act: Callable[..., Awaitable[Json]], *args: Any, effect: bool = False
    ) -> Json:
        """Call `act(*args)` at a door outside; note the request and what came back (plain JSON, no secrets).

        With `effect`, the call changes the world.
        """

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        """What `parse` makes of a Secret's data. Noted is only that it was read; None when played back."""


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Calls of the tasks that begin in the block are noted as made at once: which ends first is chance."""
    if _GROUP.get():
        yield  # within others that are at once
        return
    token = _GROUP.set(next(_NUMBERS))
    try:
        yield
    finally:
        _GROUP.reset(token)


class Groups:
    """Numbers for those calls of one run that are made at once: the same on each run."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {0: 0}

    def current(self) -> int:
        """The number for a call that is made now; 0 if it is made alone."""
        return self._numbers.setdefault(_GROUP.get(), len(self._numbers))


def error_record(error: BaseException) -> dict[str, Any]:
    """An error as it is noted: by the class that tells what to do about it."""
    known = next((c for c in type(error).__mro__ if c.__module__ == errors.__name__), type(error))
    return {
        "type": known.__name__,
        "message": str(error),
        "codes": errors.codes(error),
        "retry_after": getattr(error, "retry_after", None),
    }


@dataclass
class ChangeTracker:
    """The recorder of a run, which remembers whether the run has changed anything."""

    recorder: Recorder
    changed: bool = False

    async def read(self, ref: ObjectRef) -> Object | None:
        return await self.recorder.read(ref)

    async def call(
        self, door: str, request: Json, act: Callable[..., Awaitable[Json]], *args: Any, effect: bool = False
    ) -> Json:
        answer = await self.recorder.call(door, request, act, *args, effect=effect)
        self.changed = self.changed or (effect and not _nothing_to_do(answer))
        return answer

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        return await self.recorder.secret(ref, parse)


def _nothing_to_do(answer: Json) -> bool:
    """Some effects answer so, with False or beside what else they have to say."""
    return answer is False or (isinstance(answer, Mapping) and answer.get("changed") is False)
