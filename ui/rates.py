"""Rates: how many runs of each pool ended in the last minutes, and speeds from counters that only grow."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from typing import ClassVar, NamedTuple

_STEP = 10
_STEPS = 60
_KEPT = 200
"""Durations of which the median is taken."""

_WINDOW = 12.0
"""Seconds over which a speed is taken: long enough to be calm, short enough to be true."""
_APART = 1.0
_MOST_SAMPLES, _MOST_KEYS = 10, 20_000

Counts = tuple[int, ...]


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


class Meter:
    """Remembers what counters said a moment ago, for those who look at them again and again."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, Counts]]] = {}

    def speeds(self, key: str, counts: Counts, now: float) -> tuple[float, ...] | None:
        """How fast each counter of a key grows per second; None until that is known."""
        samples = self._samples.pop(key, None) or deque(maxlen=_MOST_SAMPLES)
        self._samples[key] = samples
        if len(self._samples) > _MOST_KEYS:
            del self._samples[next(iter(self._samples))]
        while samples and now - samples[0][0] > _WINDOW:
            samples.popleft()
        # A counter that has shrunk begins anew: its Envoy was started again.
        if samples and any(after < before for before, after in zip(samples[-1][1], counts, strict=True)):
            samples.clear()
        if not samples or now - samples[-1][0] >= _APART:
            samples.append((now, counts))
        at, before = samples[0]
        if now - at < _APART:
            return None
        return tuple((after - old) / (now - at) for old, after in zip(before, counts, strict=True))
