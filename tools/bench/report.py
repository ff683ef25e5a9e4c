"""Figures of benchmarks, and the tables that show them."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from windowbox.errors import WindowboxError

_Row = TypeVar("_Row")
_Result = TypeVar("_Result")

_ENOUGH = 3
"""Failures after which an operation is not repeated: each lasts until its timeout."""


def say(doing: str) -> None:
    """Announce the next step, on the standard error."""
    click.echo(f"  {doing} …", err=True)


@dataclass(frozen=True)
class Report:
    """The result of a benchmark."""

    figures: Any
    """A dataclass, or a list of them."""
    parts: Sequence[RenderableType]
    """The figures as tables and sentences."""

    def show(self, output: str) -> None:
        """Print the figures as `text`, with facts about the machine, or as `json`."""
        if output == "json":
            click.echo(json.dumps(self.figures, indent=2, default=dataclasses.asdict))
            return
        # Figures of a shared machine mean little without its load.
        machine = MachineFacts()
        busy = ", ".join(f"{load:.1f}" for load in machine.load)
        facts = f"This machine: {machine.cores} cores; load in the last 1, 5, 15 minutes: {busy}"
        # Without a terminal there is no width to fit: tables in files and pipes keep all digits.
        Console(width=None if sys.stdout.isatty() else 180).print(Group(*self.parts, Text(facts)))


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """Facts about the machine, at the end of a benchmark."""

    load: tuple[float, float, float] = field(default_factory=os.getloadavg)
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)


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
    """One operation on `count` objects."""

    name: str
    count: int
    seconds: float
    """From the first request until the last object is as requested."""
    latency: Spread | None = None
    """From the request for an object until a watch shows it as requested."""
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    """CPU of each process, in milliseconds for each object."""
    requests: Mapping[str, float] = field(default_factory=dict)
    """Requests of windowbox to the API, for each object."""
    writes: float = 0.0
    """Requests among them that write, for each object."""
    dns_updates: float = 0.0
    """Update messages to the name server, for each object."""
    elsewhere_percent: float = 0.0
    """How much of the machine other processes used meanwhile."""

    @property
    def rate(self) -> float:
        """Objects each second."""
        return self.count / self.seconds if self.seconds else 0.0

    @property
    def our_cpu_ms(self) -> float:
        """CPU of windowbox's own processes together, in milliseconds for each object."""
        return sum(ms for name, ms in self.cpu_ms.items() if is_ours(name))


@dataclass(frozen=True)
class Restart:
    """A restart of all windowbox processes with unchanged objects."""

    objects: int
    ready: float
    """Seconds until the last process was ready."""
    quiet: float
    """Seconds until all of them were idle."""
    requests: Mapping[str, int]
    writes: int
    dns_updates: int

    def __str__(self) -> str:
        return (
            f"Restart with {self.objects} unchanged objects: ready after {self.ready} s, "
            f"quiet after {self.quiet} s; {self.writes} API writes"
        )


def is_ours(process: str) -> bool:
    """Whether the process is one of windowbox's, not of the sandbox's servers."""
    return process.partition("-")[0] in {"runner", "watcher", "worker", "patcher", "admit"}


@dataclass(frozen=True)
class Measured:
    """The samples of one repeated operation."""

    what: str
    count: int
    aim_ms: float | None
    spread: Spread | None
    """None if no attempt completed."""
    failed: Sequence[str] = ()
    """Why attempts did not complete."""
    connections: int = 0
    """Connections that a client opened meanwhile."""
    errors: Sequence[str] = ()
    """Why connections among them failed."""
    early: int = 0
    """How often the status came before the traffic: a client that connected at once was not served."""

    @classmethod
    def of(
        cls, what: str, took: Sequence[float], aim: float | None, failed: Sequence[str], **more: Any
    ) -> Measured:
        return cls(what, len(took), aim, Spread.of(took) if took else None, failed, **more)

    @property
    def reached(self) -> bool:
        """Whether the median is within the aim, without failures."""
        within = self.aim_ms is None or (self.spread is not None and self.spread.p50 <= self.aim_ms)
        return within and not self.failed and not self.errors


async def repeated(times: int, attempt: Callable[[], Awaitable[_Result]]) -> tuple[list[_Result], list[str]]:
    """The results of `times` attempts, and why some failed; stops after a few failures."""
    results, failed = list[_Result](), list[str]()
    for _ in range(times):
        if len(failed) == _ENOUGH:
            break
        try:
            results.append(await attempt())
        except (WindowboxError, TimeoutError) as error:
            failed.append(str(error) or "not after a long time")
    return results, failed


def table(title: str, rows: Iterable[_Row], columns: Mapping[str, Callable[[_Row], str]]) -> Table:
    """A table of `rows`; columns are titles with the functions that make their cells."""
    made = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell(row) for cell in columns.values()))
    return made


def phases_table(title: str, phases: Sequence[Phase]) -> Table:
    """Phases with their rates, latencies and costs."""
    return table(
        title,
        phases,
        {
            "phase": lambda one: one.name,
            "objects": lambda one: str(one.count),
            "seconds": lambda one: f"{one.seconds:.2f}",
            "objects/s": lambda one: f"{one.rate:.0f}",
            "p50 ms": lambda one: f"{one.latency.p50:.1f}" if one.latency else "",
            "p95 ms": lambda one: f"{one.latency.p95:.1f}" if one.latency else "",
            "max ms": lambda one: f"{one.latency.max:.1f}" if one.latency else "",
            "our CPU ms": lambda one: f"{one.our_cpu_ms:.2f}",
            "API writes": lambda one: f"{one.writes:.2f}",
            # Watches and lists are not counted: their number does not depend on the objects.
            "reads": lambda one: (
                f"{sum(n for what, n in one.requests.items() if what.split()[0] == 'get'):.2f}"
            ),
            "DNS updates": lambda one: f"{one.dns_updates:.3f}",
            "others %": lambda one: f"{one.elsewhere_percent:.0f}",
        },
    )


def requests_table(phases: Sequence[Phase]) -> Table:
    """The requests to the API for each object, by phase."""
    by_phase = {phase.name: lambda what, phase=phase: _cell(phase.requests.get(what)) for phase in phases}
    requests = sorted({what for phase in phases for what in phase.requests})
    title = "Requests of windowbox to the API, for each object"
    return table(title, requests, {"request": str, **by_phase})


def processes_table(
    phases: Sequence[Phase], idle_percent: Mapping[str, float], peak: Mapping[str, float]
) -> Table:
    """CPU of each process for each object, by phase and when idle, and its peak memory in MiB."""
    by_phase = {
        f"{phase.name}, CPU ms/object": lambda name, phase=phase: _cell(phase.cpu_ms.get(name))
        for phase in phases
    }
    return table(
        "Processes",
        sorted(idle_percent, key=lambda name: (not is_ours(name), name)),
        {
            "process": str,
            **by_phase,
            "idle, % of a core": lambda name: _cell(idle_percent.get(name)),
            "peak MiB": lambda name: f"{peak.get(name, 0):.0f}",
        },
    )


def measured_parts(title: str, found: Sequence[Measured]) -> list[RenderableType]:
    """A table of repeated operations, and their failures."""
    # A client that trusts the status and connects at once fails then.
    early = [
        f"{one.early} times the status came before the traffic: {one.what}" for one in found if one.early
    ]
    reasons = [f"{one.what}: {why}" for one in found for why in [*one.failed[:3], *one.errors[:3]]]
    shown = table(
        f"{title}; milliseconds, aims for p50",
        found,
        {
            "what": lambda one: one.what,
            "times": lambda one: str(one.count),
            "p50 / p95 / max": lambda one: (
                f"{one.spread.p50:.0f} / {one.spread.p95:.0f} / {one.spread.max:.0f}" if one.spread else "–"
            ),
            "aim": lambda one: "" if one.aim_ms is None else f"{one.aim_ms:.0f}",
            "": lambda one: "✓" if one.reached else "missed",
            "clients": lambda one: str(one.connections or ""),
            "errors": lambda one: str(len(one.errors)) if one.connections else "",
        },
    )
    return [shown, *map(Text, (*early, *reasons))]


def listed(figures: Mapping[str, float], digits: int = 2) -> str:
    """Figures in a sentence: `2.00 patch dnsrecords, …`."""
    return ", ".join(f"{value:.{digits}f} {what}" for what, value in sorted(figures.items()))


def percents(shares: Iterable[float]) -> str:
    return ", ".join(f"{100 * share:.0f} %" for share in shares)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
