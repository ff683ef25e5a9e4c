"""Results and targets of kinds that make objects."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import RenderableType
from rich.text import Text

from tools.bench.figures import Phase, Restart, Spread
from tools.bench.tables import table_of

RATE, ISOLATED_MS, BASTION_MS = 40.0, 40.0, 300.0
"""At least so many Infrastructures each second; at most so long for one of them, and for a Bastion."""


@dataclass(frozen=True)
class Bastions:
    """How long Bastions took once their Pod and their load balancer were ready."""

    count: int
    nodes: str
    spread: Spread
    writes: float
    """API writes for each, objects included."""


@dataclass(frozen=True)
class ExtensionFigures:
    """What `bench extensions` found."""

    phases: Sequence[Phase]
    objects: float
    """How many objects were made of each Infrastructure."""
    restart: Restart
    bastions: Bastions | None = None
    load: tuple[float, float, float] = field(default_factory=os.getloadavg)
    """How busy the machine was, as it says itself."""
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)


def shown(figures: ExtensionFigures) -> list[RenderableType]:
    restart = figures.restart
    parts: list[RenderableType] = [
        phases_table("Infrastructures", figures.phases),
        requests_table(figures.phases),
        Text(
            f"Aims: at least {RATE:.0f} Infrastructures created each second, one alone in at most "
            f"{ISOLATED_MS:.0f} ms, at most 2 API writes besides the {figures.objects:g} objects of each\n"
            f"Restart with {restart.objects} unchanged objects: ready after {restart.ready} s, quiet after "
            f"{restart.quiet} s; {restart.writes} API writes (aim: 0)"
        ),
    ]
    if found := figures.bastions:
        parts.append(
            Text(
                f"{found.count} Bastions on {found.nodes}, from Pod and load balancer being ready to "
                f"Succeeded: p50 {found.spread.p50} ms, p95 {found.spread.p95} ms (aim: {BASTION_MS:.0f} ms)"
                f"; {found.writes} API writes each"
            )
        )
    busy = ", ".join(f"{each:.1f}" for each in figures.load)
    parts.append(Text(f"This machine: {figures.cores} cores; load in the last 1, 5, 15 minutes: {busy}"))
    return parts


def phases_table(title: str, phases: Sequence[Phase]) -> RenderableType:
    table = table_of(
        title, "phase", "objects", "objects/s", "p50 ms", "p95 ms", "max ms",
        "our CPU ms", "writes", "reads", "others %",
    )  # fmt: skip
    for phase in phases:
        spread = phase.latency or Spread(0, 0, 0)
        table.add_row(
            phase.name, str(phase.count), f"{phase.rate:.0f}", f"{spread.p50:.1f}", f"{spread.p95:.1f}",
            f"{spread.max:.1f}", f"{phase.our_cpu_ms:.1f}", f"{phase.writes:.2f}",
            f"{reads(phase.requests):.2f}", f"{phase.elsewhere_percent:.0f}",
        )  # fmt: skip
    return table


def reads(requests: Mapping[str, float]) -> float:
    """Requests that change nothing, and are no part of watching."""
    return sum(count for name, count in requests.items() if name.split()[0] == "get")


def requests_table(phases: Sequence[Phase]) -> RenderableType:
    table = table_of("Requests of windowbox to the API, for each", "request", *(p.name for p in phases))
    for what in sorted({what for phase in phases for what in phase.requests}):
        table.add_row(what, *(f"{phase.requests.get(what, 0):.2f}" for phase in phases))
    return table
