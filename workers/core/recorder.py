"""The recorder: every outside call of a run, recorded so that the run can be replayed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from windowbox import errors
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef

T = TypeVar("T")

BLOCK: ContextVar[int] = ContextVar("calls at once", default=0)
"""The concurrent block of the current task; 0 outside of any."""
_NUMBERS = itertools.count(1)

Json = Any


class Calls(Protocol):
    """What makes outside calls."""

    async def call(
        self, door: str, request: Json, act: Callable[..., Awaitable[Json]], *args: Any, effect: bool = False
    ) -> Json:
        """Call `act(*args)` and record the request and the answer (plain JSON, no secrets).

        With `effect`, the call changes the world.
        """


class Recorder(Calls, Protocol):
    """Outside calls of one run: live, or answered from a recording."""

    async def read(self, ref: ObjectRef) -> Object | None:
        """The object from the bus; None if it is gone."""

    def wrote(self, ref: ObjectRef, version: str) -> None:
        """Note the version that a call of this run has written: its event requeues nothing."""

    async def time(self) -> datetime:
        """The time by the API server of our own cluster, unrecorded; runs ask `clock.now`."""

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        """The data of a Secret, parsed. Only the read itself is recorded; None in a replay."""


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Record the calls of tasks started in the block as concurrent: their order is random."""
    if BLOCK.get():
        yield  # already in a concurrent block
        return
    token = BLOCK.set(next(_NUMBERS))
    try:
        yield
    finally:
        BLOCK.reset(token)


def error_record(error: BaseException) -> dict[str, Any]:
    """The record of an error, by its class in `windowbox.errors`."""
    known = next((c for c in type(error).__mro__ if c.__module__ == errors.__name__), type(error))
    return {
        "type": known.__name__,
        "message": str(error),
        "codes": errors.codes(error),
        "retry_after": getattr(error, "retry_after", None),
    }


class Unrecorded:
    """Makes calls outside of runs, which nobody replays."""

    async def call(
        self, door: str, request: Json, act: Callable[..., Awaitable[Json]], *args: Any, effect: bool = False
    ) -> Json:
        return await act(*args)


@dataclass
class ChangeTracker:
    """A recorder that remembers whether the run has changed anything."""

    recorder: Recorder
    changed: bool = False

    async def read(self, ref: ObjectRef) -> Object | None:
        return await self.recorder.read(ref)

    async def call(
        self, door: str, request: Json, act: Callable[..., Awaitable[Json]], *args: Any, effect: bool = False
    ) -> Json:
        answer = await self.recorder.call(door, request, act, *args, effect=effect)
        # Effects that found nothing to do answer False, or {"changed": False} with further fields.
        unchanged = answer is False or (isinstance(answer, Mapping) and answer.get("changed") is False)
        self.changed = self.changed or (effect and not unchanged)
        return answer

    def wrote(self, ref: ObjectRef, version: str) -> None:
        self.recorder.wrote(ref, version)

    async def time(self) -> datetime:
        return await self.recorder.time()

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        return await self.recorder.secret(ref, parse)
