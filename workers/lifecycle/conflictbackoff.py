"""What to do when somebody else wants our objects to be different, and never tires of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from workers.recorder import Recorder

T = TypeVar("T")

_AT_ONCE = 5
"""Repairs of one object in a row that are nothing to wonder at."""
_LONGEST = 60.0
_FORGOTTEN = 300.0
"""Seconds without a repair after which all is well again."""


@dataclass
class _Repairs:
    number: int
    last: float


@dataclass
class ConflictBackoff:
    """How long to leave objects alone that had to be put right again and again, lately and here."""

    clock: Callable[[], float] = time.monotonic
    _repairs: dict[Hashable, _Repairs] = field(default_factory=dict)

    def repaired(self, ref: Hashable) -> None:
        now = self.clock()
        # In the order of their last repair, so those that can be forgotten come first.
        before = self._repairs.pop(ref, None)
        while self._repairs:
            oldest = next(iter(self._repairs))
            if now - self._repairs[oldest].last < _FORGOTTEN:
                break
            del self._repairs[oldest]
        again = before is not None and now - before.last < _FORGOTTEN
        self._repairs[ref] = _Repairs(before.number + 1 if before and again else 1, now)

    def left(self, ref: Hashable) -> float:
        """Seconds until the next repair: none at first, then each time twice as many, up to a minute."""
        repairs = self._repairs.get(ref)
        if repairs is None or repairs.number < _AT_ONCE:
            return 0.0
        pause = min(_LONGEST, 2.0 ** min(repairs.number - _AT_ONCE, 10))
        return max(0.0, repairs.last + pause - self.clock())


@dataclass
class Noticing:
    """The doors of a run, by which one can tell afterwards whether it has changed anything."""

    recorder: Recorder
    changed: bool = False

    async def read(self, ref: ObjectRef) -> Object | None:
        return await self.recorder.read(ref)

    async def call(
        self, door: str, request: Any, act: Callable[[], Awaitable[Any]], *, effect: bool = False
    ) -> Any:
        answer = await self.recorder.call(door, request, act, effect=effect)
        # Some effects answer that there was nothing to do.
        self.changed = self.changed or (effect and answer is not False)
        return answer

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        return await self.recorder.secret(ref, parse)
