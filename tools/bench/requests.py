"""Requests at a fixed rate: how long they take, and how long the API server waits for webhooks meanwhile."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sandbox.servers.apiserver import ApiServer
from windowbox.errors import Refused, Unreachable

_SERIES = re.compile(
    r"^apiserver_admission_webhook_admission_duration_seconds_(bucket|sum|count)\{([^}]*)\} (\S+)$", re.M
)
_SHORT = 'le="0.005"'


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
    """Answered requests each second."""
    failed: int = 0
    cpu_ms: float = 0.0
    """CPU of the webhook process, in milliseconds for each request."""
    called_ms: float = 0.0
    """How long the API server waited for webhooks on average, by its metrics."""
    called_short_percent: float = 0.0
    """How many of these calls took no more than 5 ms."""
    server_cpu_ms: float = 0.0
    """CPU of the API server, in milliseconds for each request."""
    elsewhere_percent: float = 0.0
    """How much of the machine other processes used meanwhile."""


@dataclass
class Answers:
    """The results of requests so far."""

    seconds: list[float] = field(default_factory=list)
    """Latencies of answered requests."""
    failed: list[str] = field(default_factory=list)

    def latency(self, what: str, took: float) -> Latency:
        """The figures of these requests, which took `took` seconds together."""
        ordered = sorted(1000 * one for one in self.seconds)
        p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        p50 = statistics.median(ordered)
        return Latency(
            what, len(ordered), round(p50, 2), round(p99, 2), round(ordered[-1], 1),
            round(len(ordered) / took, 1), len(self.failed),
        )  # fmt: skip


async def at_rate(
    act: Callable[[int], Awaitable[None]], rate: float, count: int, answers: Answers | None = None
) -> Answers:
    """Start `count` requests at `rate` a second, whether or not earlier ones are answered."""
    answers = answers or Answers()
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def send(number: int) -> None:
        started = time.perf_counter()
        try:
            await act(number)
        except (Refused, Unreachable) as error:
            answers.failed.append(str(error))
        else:
            answers.seconds.append(time.perf_counter() - started)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            group.create_task(send(number))
    return answers


@dataclass(frozen=True)
class WebhookCalls:
    """The API server's calls of webhooks since its start."""

    count: float = 0.0
    seconds: float = 0.0
    short: float = 0.0
    """How many took no more than 5 ms."""

    @classmethod
    def of(cls, api: ApiServer) -> WebhookCalls:
        return cls.parsed(api.request("GET", "/metrics").read().decode())

    @classmethod
    def parsed(cls, metrics: str) -> WebhookCalls:
        """From the text of the API server's metrics."""
        sums = {"bucket": 0.0, "sum": 0.0, "count": 0.0}
        for part, labels, value in _SERIES.findall(metrics):
            if part != "bucket" or _SHORT in labels:
                sums[part] += float(value)
        return cls(sums["count"], sums["sum"], sums["bucket"])

    def since(self, former: WebhookCalls) -> WebhookCalls:
        return WebhookCalls(
            self.count - former.count, self.seconds - former.seconds, self.short - former.short
        )

    @property
    def average_ms(self) -> float:
        return 1000 * self.seconds / self.count if self.count else 0.0

    @property
    def short_percent(self) -> float:
        return 100 * self.short / self.count if self.count else 0.0
