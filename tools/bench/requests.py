"""Requests at a fixed rate, and how long they take."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from windowbox.errors import Refused, Unreachable


@dataclass(frozen=True)
class Latency:
    """Requests of one sort, at a fixed rate."""

    what: str
    count: int
    p50: float
    """Milliseconds."""
    p99: float
    max: float
    rate: float
    """Requests each second that were answered."""
    failed: int = 0
    cpu_ms: float = 0.0
    """CPU of the webhook process, in milliseconds for each request."""
    called_ms: float = 0.0
    """How long the API server waited for webhooks on average, in its own words."""
    called_short_percent: float = 0.0
    """How many of these calls took no more than 5 ms."""
    server_cpu_ms: float = 0.0
    """CPU of the API server, in milliseconds for each request."""
    elsewhere_percent: float = 0.0
    """How much of the machine others used meanwhile."""


@dataclass
class Asked:
    """What became of requests so far."""

    seconds: list[float] = field(default_factory=list)
    """Of those that were answered."""
    failed: list[str] = field(default_factory=list)


async def at_rate(
    act: Callable[[int], Awaitable[None]], rate: float, count: int, asked: Asked | None = None
) -> Asked:
    """Each request begins at its time, whatever becomes of the others."""
    asked = asked or Asked()
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one(number: int) -> None:
        started = time.perf_counter()
        try:
            await act(number)
        except (Refused, Unreachable) as error:
            asked.failed.append(str(error))
        else:
            asked.seconds.append(time.perf_counter() - started)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            group.create_task(one(number))
    return asked


def latency(what: str, asked: Asked, took: float) -> Latency:
    ordered = sorted(1000 * one for one in asked.seconds)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    p50 = statistics.median(ordered)
    return Latency(
        what, len(ordered), round(p50, 2), round(p99, 2), round(ordered[-1], 1),
        round(len(ordered) / took, 1), len(asked.failed),
    )  # fmt: skip
