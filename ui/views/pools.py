"""Pools and bus: what waits and for how long, who works, who leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bus import subjects
from commands import busstatus
from commands.busstatus import PoolState
from ui import bustools
from ui.bustools import Lease, Stream
from ui.mirror import Later, Place
from ui.rates import Figures, Rates
from ui.view import Params, Source, View
from windowbox.models.refs import ObjectRef

_LAG = 5.0
"""Seconds after which a waiting object is late."""
_FULL = 0.8
_MOST_QUARANTINED = 50


@dataclass(frozen=True)
class Row:
    """A pool, and what became of its runs."""

    pool: PoolState
    figures: Figures

    @property
    def tone(self) -> str:
        if not self.pool.workers and (self.pool.waiting or self.pool.unrouted):
            return "bad"
        return "late" if self.pool.oldest_seconds > _LAG or self.pool.redelivered else ""

    @property
    def idle(self) -> bool:
        quiet = not (self.pool.waiting or self.pool.in_flight or self.pool.unrouted)
        return quiet and not any(self.figures.counts)


@dataclass(frozen=True)
class Quarantined:
    """An object whose runs ended their process."""

    pool: str
    ref: ObjectRef
    since: float
    until: float


@dataclass(frozen=True)
class StreamRow:
    stream: Stream

    @property
    def full(self) -> float:
        """The part of its limit that it has reached."""
        return self.stream.bytes / self.stream.limit if self.stream.limit > 0 else 0.0

    @property
    def tone(self) -> str:
        return "bad" if self.stream.behind else "late" if self.full > _FULL else ""


@dataclass(frozen=True)
class Process:
    """A process of windowbox, and the leases that it holds."""

    name: str
    role: str
    ready: bool
    working: int
    """Objects in flight."""
    leases: tuple[str, ...]


@dataclass(frozen=True)
class Pools:
    """The model of the view."""

    rows: tuple[Row, ...]
    idle: tuple[Row, ...]
    quarantined: tuple[Quarantined, ...]
    streams: tuple[StreamRow, ...]
    processes: tuple[Process, ...]
    free: tuple[str, ...]
    """Leases that nobody holds."""
    server: Mapping[str, Any] | None


def quarantined(later: Mapping[Place, Later], now: float) -> list[Quarantined]:
    found = [
        Quarantined(pool, subjects.ref(key), one.made, one.due)
        for (pool, key), one in later.items()
        if one.quarantined and one.due > now
    ]
    return sorted(found, key=lambda one: one.since)[:_MOST_QUARANTINED]


def processes(present: Iterable[Mapping[str, Any]], leases: Sequence[Lease]) -> list[Process]:
    """The processes that answer, then holders of leases that do not."""
    by_holder: dict[str, list[str]] = {}
    for lease in leases:
        if lease.holder:
            by_holder.setdefault(lease.holder, []).append(lease.name)
    found = []
    for one in present:
        name, pools = str(one["process"]), one.get("pools") or ()
        working = sum(int(pool.get("in flight", 0)) for pool in pools)
        held = tuple(by_holder.pop(name, ()))
        found.append(Process(name, str(one["role"]), bool(one.get("ready")), working, held))
    silent = [Process(name, "", False, 0, tuple(held)) for name, held in by_holder.items()]
    return [*found, *silent]


def model(
    states: Sequence[PoolState], rates: Rates, later: Mapping[Place, Later], streams: Sequence[Stream],
    leases: Sequence[Lease], present: Sequence[Mapping[str, Any]], server: Mapping[str, Any] | None,
    now: float,
) -> Pools:  # fmt: skip
    rows = [Row(state, rates.figures(state.pool, now)) for state in states]
    return Pools(
        tuple(row for row in rows if not row.idle), tuple(row for row in rows if row.idle),
        tuple(quarantined(later, now)), tuple(map(StreamRow, streams)),
        tuple(processes(present, leases)), tuple(lease.name for lease in leases if not lease.holder), server,
    )  # fmt: skip


async def read(source: Source, _: Params) -> dict[str, Any]:
    mirror = source.mirror
    present = await mirror.processes()
    states, streams, leases, server = await asyncio.gather(
        busstatus.pools(mirror.bus, present, at_rest=False),
        bustools.stored(mirror.bus),
        bustools.held(mirror.bus),
        busstatus.server(source.monitor) if source.monitor else asyncio.sleep(0),
    )
    return {"model": model(states, mirror.rates, mirror.later, streams, leases, present, server, time.time())}


VIEW = View(
    name="pools",
    title="Pools and bus",
    about="What waits and for how long, who works, who leads",
    read=read,
    topics=frozenset({"runs"}),
    interval=2.0,
)
