"""Backoff for repairs that another program reverts again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from workers.core.recorder import Recorder

_FREE_REPAIRS = 5
"""Repairs of one object in a row before the backoff starts."""
_LONGEST = 60.0
_FORGET_AFTER = 300.0
"""Seconds without a repair after which the backoff ends."""


@dataclass
class _Repairs:
    number: int
    last: float


@dataclass
class ConflictBackoff:
    """Delays the repairs of objects that this process has repaired repeatedly."""

    clock: Callable[[], float] = time.monotonic
    _repairs: dict[Hashable, _Repairs] = field(default_factory=dict)

    def repaired(self, key: Hashable) -> None:
        """Count a repair."""
        now = self.clock()
        # Ordered by the last repair, so the entries to forget come first.
        before = self._repairs.pop(key, None)
        while self._repairs:
            oldest = next(iter(self._repairs))
            if now - self._repairs[oldest].last < _FORGET_AFTER:
                break
            del self._repairs[oldest]
        again = before is not None and now - before.last < _FORGET_AFTER
        self._repairs[key] = _Repairs(before.number + 1 if before and again else 1, now)

    def remaining(self, key: Hashable) -> float:
        """Seconds until the next repair: none at first, then doubling, up to a minute."""
        repairs = self._repairs.get(key)
        if repairs is None or repairs.number < _FREE_REPAIRS:
            return 0.0
        pause = min(_LONGEST, 2.0 ** min(repairs.number - _FREE_REPAIRS, 10))
        return max(0.0, repairs.last + pause - self.clock())

    async def noted(self, key: Hashable, recorder: Recorder) -> float:
        """`remaining`, recorded: a replay has no history of repairs."""

        async def remaining() -> float:
            return self.remaining(key)

        return float(await recorder.call("patience", None, remaining))

    async def noted_each(self, keys: Mapping[str, Hashable], recorder: Recorder) -> Mapping[str, float]:
        """`remaining` for several, by name, recorded. Those that may be repaired now are omitted."""

        async def each_remaining() -> dict[str, float]:
            remaining = {name: self.remaining(key) for name, key in keys.items()}
            return {name: seconds for name, seconds in remaining.items() if seconds}

        found: Mapping[str, float] = await recorder.call("patience", None, each_remaining) or {}
        return found
