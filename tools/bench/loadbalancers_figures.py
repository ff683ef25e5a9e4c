"""Results and targets of load balancers, and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tools.bench.figures import Spread, is_ours
from tools.bench.tables import table_of


@dataclass(frozen=True)
class Measured:
    """The samples of one repeated operation."""

    what: str
    count: int
    aim_ms: float | None
    spread: Spread | None
    """None if it never came to an end."""
    failed: Sequence[str] = ()
    """Why some never came to an end."""
    connections: int = 0
    """Those that a client opened meanwhile."""
    errors: Sequence[str] = ()
    """What went wrong with them."""
    early: int = 0
    """How often a status came before the traffic: a client who acted upon it found nobody."""

    @property
    def reached(self) -> bool:
        within = self.aim_ms is None or (self.spread is not None and self.spread.p50 <= self.aim_ms)
        return within and not self.failed and not self.errors


@dataclass(frozen=True)
class BalancerFigures:
    """What `bench loadbalancer` found."""

    nodes: str
    measured: Sequence[Measured]
    writes: float
    """To the API, for each load balancer from its creation to its end; without Events."""
    requests: Mapping[str, float] = field(default_factory=dict)
    """Requests of windowbox to the API, for each load balancer."""
    untried: str = ""
    """Why nodes were not real, if they were not."""
    elsewhere_percent: float = 0.0
    """How much of the machine was meanwhile used by processes that have nothing to do with it."""


@dataclass(frozen=True)
class ScaleResult:
    """Many load balancers on one edge."""

    services: int
    nodes: str
    ready_seconds: float
    """From the first request to the last status."""
    unserved: Sequence[str]
    """Why some do not serve, whatever their status says."""
    envoy_mb: float
    memory_mb: Mapping[str, float]
    """What each other process has for itself alone."""
    idle_percent: Mapping[str, float]
    """CPU of each process while nothing happens, in percent of one core."""
    writes: float
    """To the API, for each load balancer created; without Events."""
    requests: Mapping[str, float]
    one_more: Measured | None = None
    one_more_cpu_ms: Mapping[str, float] = field(default_factory=dict)
    """CPU of each process for one more, created and deleted, without what it uses when idle."""
    elsewhere_percent: float = 0.0
    """How much of the machine other processes used during the idle time."""

    @property
    def ours_idle(self) -> float:
        """CPU of Envoy and windowbox together."""
        return sum(used for name, used in self.idle_percent.items() if is_ours(name) or name == "envoy")


@dataclass(frozen=True)
class WaitingFigures:
    """Many Services that wait for an address of one range."""

    addresses: str
    waiting: int
    checks: int
    check_ms: Spread
    """CPU of this process for looking at one of them again."""
    change_ms: float
    """CPU for noting one address that is released or allocated, and for finding whom to serve then."""


def latencies(figures: BalancerFigures) -> list[RenderableType]:
    said = f" (real ones need {figures.untried})" if figures.untried else ""
    return [
        _measured(
            f"Load balancers before {figures.nodes}{said}; milliseconds, aims for p50", figures.measured
        ),
        Text(
            f"API writes for each load balancer, from its creation to its end: {figures.writes:.2f} "
            f"(aim: 3); {_listed(figures.requests)}\n"
            f"used by other processes meanwhile: {figures.elsewhere_percent:.0f} % of the machine"
        ),
        *_failures(figures.measured),
    ]


def measured_tables(title: str, found: Sequence[Measured]) -> list[RenderableType]:
    """One table, and what went wrong."""
    return [_measured(f"{title}; milliseconds, aims for p50", found), *_failures(found)]


def scale_tables(found: Sequence[ScaleResult]) -> list[RenderableType]:
    table = table_of(
        "Many load balancers on one edge (idle: Envoy and windowbox, % of a core)", "Services",
        "ready, s", "Envoy, MB", "ours, MB", "idle", "of Envoy", "API writes", "others, %",
    )  # fmt: skip
    for one in found:
        memory = ", ".join(f"{mb:.0f}" for name, mb in sorted(one.memory_mb.items()) if is_ours(name))
        table.add_row(
            str(one.services), f"{one.ready_seconds:.1f}", f"{one.envoy_mb:.1f}", memory,
            f"{one.ours_idle:.2f}", f"{one.idle_percent.get('envoy', 0):.2f}", f"{one.writes:.2f}",
            f"{one.elsewhere_percent:.0f}",
        )  # fmt: skip
    more = [one.one_more for one in found if one.one_more]
    unserved = [Text(f"does not serve: {reason}") for one in found for reason in one.unserved]
    parts: list[RenderableType] = [table, *unserved, *_idle(found), *_one_more_cpu(found)]
    return (
        [*parts, _measured("One more of them; milliseconds, aims for p50", more), *_failures(more)]
        if more
        else parts
    )


def waiting_table(found: Sequence[WaitingFigures]) -> RenderableType:
    table = table_of(
        "Services that wait for an address; CPU, ms",
        "addresses", "waiting", "re-checks", "p50 / p95 / max", "one change",
    )  # fmt: skip
    for one in found:
        spread = one.check_ms
        table.add_row(
            one.addresses, str(one.waiting), str(one.checks),
            f"{spread.p50} / {spread.p95} / {spread.max}", f"{one.change_ms:.2f}",
        )  # fmt: skip
    return table


def _idle(found: Sequence[ScaleResult]) -> list[RenderableType]:
    return [
        Text(
            f"idle with {one.services}, % of a core: "
            + ", ".join(f"{name} {used:.2f}" for name, used in sorted(one.idle_percent.items()))
        )
        for one in found
    ]


def _one_more_cpu(found: Sequence[ScaleResult]) -> list[RenderableType]:
    return [
        Text(
            f"one more beside {one.services}, created and deleted, CPU in ms: "
            + ", ".join(f"{name} {used:.1f}" for name, used in sorted(one.one_more_cpu_ms.items()))
        )
        for one in found
        if one.one_more_cpu_ms
    ]


def _measured(title: str, found: Sequence[Measured]) -> Table:
    table = table_of(title, "what", "times", "p50 / p95 / max", "aim", "", "clients", "errors")
    for one in found:
        spread = one.spread
        shown = " / ".join(f"{v:.0f}" for v in (spread.p50, spread.p95, spread.max)) if spread else "–"
        aim = f"{one.aim_ms:.0f}" if one.aim_ms is not None else ""
        table.add_row(
            one.what, str(one.count), shown, aim, "✓" if one.reached else "missed",
            str(one.connections or ""), str(len(one.errors)) if one.connections else "",
        )  # fmt: skip
    return table


def _failures(found: Sequence[Measured]) -> list[RenderableType]:
    early = [
        f"{one.early} times the status came before the traffic: {one.what}" for one in found if one.early
    ]
    reasons = [f"{one.what}: {said}" for one in found for said in [*one.failed[:3], *one.errors[:3]]]
    return [Text(line) for line in (*early, *reasons)]


def _listed(requests: Mapping[str, float]) -> str:
    return ", ".join(f"{count:.2f} {what}" for what, count in sorted(requests.items()))
