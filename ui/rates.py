"""How many runs of each pool ended in the last minutes, for sparklines."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from typing import ClassVar, NamedTuple

_STEP = 10
_STEPS = 60
_KEPT = 200
"""Durations of which the median is taken."""


class Figures(NamedTuple):
    """Figures of one pool."""

    counts: tuple[int, ...]
    """Runs that ended in each step, the oldest first."""
    rate: float
    """Runs per second in the last minute."""
    failed: int
    """Of the last minute."""
    seconds: float | None
    """Median of the last runs."""


class Rates:
    """Counts by pool and step."""

    SECONDS: ClassVar = _STEP * _STEPS

    def __init__(self) -> None:
        self._counts: dict[str, dict[int, int]] = defaultdict(dict)
        self._failed: dict[str, dict[int, int]] = defaultdict(dict)
        self._seconds: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))

    def count(self, pool: str, at: float, *, failed: bool, seconds: float) -> None:
        step = int(at) // _STEP
        for counts in (self._counts[pool], *([self._failed[pool]] if failed else [])):
            counts[step] = counts.get(step, 0) + 1
            if len(counts) > _STEPS + 1:
                del counts[min(counts)]
        self._seconds[pool].append(seconds)

    def figures(self, pool: str, now: float) -> Figures:
        step = int(now) // _STEP
        counts, failed = self._counts.get(pool, {}), self._failed.get(pool, {})
        minute = range(step - 60 // _STEP + 1, step + 1)
        seconds = self._seconds.get(pool)
        return Figures(
            tuple(counts.get(one, 0) for one in range(step - _STEPS + 1, step + 1)),
            sum(counts.get(one, 0) for one in minute) / 60,
            sum(failed.get(one, 0) for one in minute),
            statistics.median(seconds) if seconds else None,
        )
