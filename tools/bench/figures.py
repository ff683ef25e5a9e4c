"""Results of benchmarks, and their statistics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Spread:
    """Latencies, in milliseconds."""

    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        ordered = sorted(1000 * s for s in seconds)
        p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        return cls(round(statistics.median(ordered), 1), round(p95, 1), round(ordered[-1], 1))


@dataclass(frozen=True)
class Phase:
    """One measurement: an operation on `count` objects."""

    name: str
    count: int
    seconds: float
    """From the first request to the last object being what it ought to be."""
    latency: Spread | None = None
    """From a request being sent to its object being seen as it ought to be."""
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    """CPU of each process, in milliseconds for each object."""
    requests: Mapping[str, float] = field(default_factory=dict)
    """Requests of windowbox to the API, for each object."""
    writes: float = 0.0
    """Those of them that change something, for each object."""
    dns_updates: float = 0.0
    """Update messages to the name server, for each object."""
    elsewhere_percent: float = 0.0
    """How much of the machine was meanwhile used by processes that have nothing to do with it."""

    @property
    def rate(self) -> float:
        return self.count / self.seconds if self.seconds else 0.0

    @property
    def our_cpu_ms(self) -> float:
        """CPU of windowbox's own processes together, in milliseconds for each object."""
        return sum(ms for name, ms in self.cpu_ms.items() if is_ours(name))


def is_ours(process: str) -> bool:
    return process.partition("-")[0] in {"runner", "watcher", "worker", "patcher", "admit"}


@dataclass(frozen=True)
class Restart:
    """A restart of all windowbox processes with unchanged objects."""

    objects: int
    ready: float
    """Seconds until the last process said that it is ready."""
    quiet: float
    """Seconds until none of them had anything left to do."""
    requests: Mapping[str, int]
    writes: int
    dns_updates: int


@dataclass(frozen=True)
class Figures:
    """What `bench dnsrecords` found."""

    phases: Sequence[Phase]
    restart: Restart
    idle_percent: Mapping[str, float]
    """CPU of each process while nothing happens, in percent of one core."""
    peak_mib: Mapping[str, float]
    """The most memory that each process had."""


@dataclass(frozen=True)
class QueueFigures:
    """What `bench bus` found."""

    items: int
    workers: int
    wishes_per_second: int
    """How fast one process makes wishes."""
    items_per_second: int
    """How fast the worker processes together took and settled what was wished."""
    worker_cpu_ms: float
    """CPU of the worker processes, in milliseconds for each item."""
    shares: Sequence[float]
    """The part of each worker process in the work."""


@dataclass(frozen=True)
class Scale:
    """What `bench scale` found for one number of worker processes."""

    workers: int
    count: int
    rate: float
    """Records each second."""
    our_cpu_ms: float
    """CPU of windowbox's own processes together, in milliseconds for each record."""
    shares: Sequence[float]
    """The part of each worker process in the work."""
