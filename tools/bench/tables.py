"""Figures as tables, for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tools.bench.figures import Figures, Phase, QueueFigures, Scale, is_ours
from tools.bench.requests import Latency


def show(*parts: RenderableType) -> None:
    Console().print(Group(*parts))


def dnsrecords(figures: Figures) -> list[RenderableType]:
    restart = figures.restart
    return [
        _phases(figures.phases),
        _requests(figures.phases),
        _processes(figures),
        Text(
            f"Restart with {restart.objects} unchanged objects: ready after {restart.ready} s, "
            f"quiet after {restart.quiet} s; {restart.writes} API writes, "
            f"{restart.dns_updates} DNS updates\n"
            f"  requests: {', '.join(f'{n} {what}' for what, n in restart.requests.items()) or 'none'}"
        ),
    ]


def _phases(phases: Sequence[Phase]) -> Table:
    table = table_of(
        "DNSRecords", "phase", "records", "records/s", "p50 ms", "p95 ms", "max ms", "our CPU ms/record",
        "API writes/record", "DNS updates/record", "used by others, %",
    )  # fmt: skip
    for phase in phases:
        latency = phase.latency
        spread = [f"{v:.1f}" for v in (latency.p50, latency.p95, latency.max)] if latency else ["", "", ""]
        table.add_row(
            phase.name, str(phase.count), f"{phase.rate:.0f}", *spread, f"{phase.our_cpu_ms:.2f}",
            f"{phase.writes:.2f}", f"{phase.dns_updates:.3f}", f"{phase.elsewhere_percent:.0f}",
        )  # fmt: skip
    return table


def _requests(phases: Sequence[Phase]) -> Table:
    table = table_of(
        "Requests of windowbox to the API, for each record", "request", *(p.name for p in phases)
    )
    for what in sorted({what for phase in phases for what in phase.requests}):
        table.add_row(what, *(_cell(phase.requests.get(what)) for phase in phases))
    return table


def _processes(figures: Figures) -> Table:
    phases = figures.phases
    cpu = [f"{phase.name}, CPU ms/record" for phase in phases]
    table = table_of("Processes", "process", *cpu, "idle, % of a core", "peak MiB")
    for name in sorted(figures.idle_percent, key=lambda name: (not is_ours(name), name)):
        table.add_row(
            name, *(_cell(phase.cpu_ms.get(name)) for phase in phases),
            _cell(figures.idle_percent.get(name)), f"{figures.peak_mib.get(name, 0):.0f}",
        )  # fmt: skip
    return table


def admission(found: Sequence[Latency]) -> Table:
    table = table_of(
        "Webhooks", "requests", "count", "each second", "p50 ms", "p99 ms", "max ms",
        "failed",
        "CPU of the webhook process, ms/request", "CPU of the API server, ms/request",
        "a webhook's answer, ms", "within 5 ms, %", "used by others, %",
    )  # fmt: skip
    for one in found:
        table.add_row(
            one.what, str(one.count), f"{one.rate:.0f}", f"{one.p50:.2f}", f"{one.p99:.2f}",
            f"{one.max:.1f}", str(one.failed), f"{one.cpu_ms:.2f}", f"{one.server_cpu_ms:.2f}",
            f"{one.called_ms:.2f}", f"{one.called_short_percent:.0f}", f"{one.elsewhere_percent:.0f}",
        )  # fmt: skip
    return table


def queue(figures: QueueFigures) -> Table:
    table = table_of(
        "The bus alone", "items", "workers", "wishes/s", "items/s", "CPU ms/item", "share of each worker"
    )
    table.add_row(
        str(figures.items), str(figures.workers), str(figures.wishes_per_second),
        str(figures.items_per_second), f"{figures.worker_cpu_ms:.3f}", shares(figures.shares),
    )  # fmt: skip
    return table


def scale(found: Sequence[Scale]) -> Table:
    table = table_of(
        "More workers", "workers", "records", "records/s", "our CPU ms/record", "share of each worker"
    )
    for each in found:
        table.add_row(
            str(each.workers), str(each.count), f"{each.rate:.0f}", f"{each.our_cpu_ms:.2f}",
            shares(each.shares),
        )  # fmt: skip
    return table


def table_of(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def shares(of: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:.0f} %" for share in of)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
