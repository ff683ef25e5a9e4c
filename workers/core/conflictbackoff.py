"""Back-off of repairs that another program undoes again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from workers.core.recorder import Recorder

_FREE_REPAIRS = 5
"""Repairs of one object in a row that are nothing to wonder at."""
_LONGEST = 60.0
_FORGET_AFTER = 300.0
"""Seconds without a repair after which the object is repaired at once again."""


@dataclass
class _Repairs:
    number: int
    last: float


@dataclass
class ConflictBackoff:
    """How long to leave objects alone that this process has repaired again and again lately."""

    clock: Callable[[], float] = time.monotonic
    _repairs: dict[Hashable, _Repairs] = field(default_factory=dict)

    def repaired(self, key: Hashable) -> None:
        """Count one repair more."""
        now = self.clock()
        # In the order of their last repair, so those that can be forgotten come first.
        before = self._repairs.pop(key, None)
        while self._repairs:
            oldest = next(iter(self._repairs))
            if now - self._repairs[oldest].last < _FORGET_AFTER:
                break
            del self._repairs[oldest]
        again = before is not None and now - before.last < _FORGET_AFTER
        self._repairs[key] = _Repairs(before.number + 1 if before and again else 1, now)

    def remaining(self, key: Hashable) -> float:
        """Seconds until the next repair: none at first, then each time twice as many, up to a minute."""
        repairs = self._repairs.get(key)
        if repairs is None or repairs.number < _FREE_REPAIRS:
            return 0.0
        pause = min(_LONGEST, 2.0 ** min(repairs.number - _FREE_REPAIRS, 10))
        return max(0.0, repairs.last + pause - self.clock())

    async def noted(self, key: Hashable, recorder: Recorder) -> float:
        """`remaining`, noted in the run's record: a replay has no history of its own."""

        async def act() -> float:
            return self.remaining(key)

        return float(await recorder.call("patience", None, act))

    async def noted_each(self, keys: Mapping[str, Hashable], recorder: Recorder) -> Mapping[str, float]:
        """The same for several, by name. Those that may be repaired now are left out."""

        async def act() -> dict[str, float]:
            remaining = {name: self.remaining(key) for name, key in keys.items()}
            return {name: seconds for name, seconds in remaining.items() if seconds}

        found: Mapping[str, float] = await recorder.call("patience", None, act) or {}
        return found
