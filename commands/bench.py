"""`windowbox bench`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from commands.sandbox import output_option
from windowbox.errors import WindowboxError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sandbox.options import Options

_T = TypeVar("_T")
_ROOT = Path(__file__).parents[1]


@click.group(
    invoke_without_command=True,
    epilog="\b\nExamples:\n"
    "  windowbox bench                          all of them\n"
    "  windowbox bench dnsrecords -n 10000      many records\n"
    "  windowbox bench loadbalancer --scale     a thousand Services on one Envoy\n"
    "  windowbox bench scale --clusters 1000    a thousand clusters\n"
    "  windowbox bench extensions -n 50         fifty Infrastructures at once\n"
    "  windowbox bench fairness                 beside a provider that answers late\n"
    "  windowbox bench bus -o json | jq .items_per_second",
)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure how fast this machine is. Each measurement runs in a sandbox of its own."""
    if not (_ROOT / "tools" / "bench").is_dir():
        raise click.ClickException(
            "the measurements are no part of this installation: run `windowbox bench` in a checkout"
        )
    if str(_ROOT) not in sys.path:
        sys.path.append(str(_ROOT))  # an editable installation knows the packages of the wheel only
    if ctx.invoked_subcommand is None:
        for measurement in (
            dnsrecords,
            bus,
            scale,
            loadbalancer,
            extensions,
            controlplane,
            machines,
            fairness,
            admit,
            hostile,
        ):
            ctx.invoke(measurement)


def _together(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--together", is_flag=True, help="One `windowbox run` in place of a process for each role."
    )(command)


def _first(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--first", is_flag=True, help="Run what is measured before other processes (Linux, root)."
    )(command)


def _options(together: bool) -> Options:
    from sandbox.options import TOGETHER, Options

    return Options.model_validate(TOGETHER if together else {})


@bench.command(short_help="DNSRecords: from the API to DNS and back.")
@click.option(
    "-n", "count", type=click.IntRange(1), default=1000, show_default=True, help="How many records."
)
@click.option(
    "--idle", type=click.FloatRange(0.1), default=30.0, show_default=True, help="Seconds to measure idleness."
)
@_together
@_first
@output_option
def dnsrecords(count: int, idle: float, together: bool, first: bool, output: str) -> None:
    """Create, change and delete DNSRecords; restart over them; be idle."""
    from tools.bench import dnsrecords, tables

    figures = _run(dnsrecords.run(count, idle, _options(together), _say, first=first))
    _show(output, figures, *tables.dnsrecords(figures))


@bench.command(short_help="The queue alone, with empty runs.")
@click.option("-n", "items", type=click.IntRange(1), default=20000, show_default=True, help="How many items.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="How many processes.")
@output_option
def bus(items: int, workers: int, output: str) -> None:
    """Items through the queue and the worker runtime, with empty runs."""
    from tools.bench import queue, tables

    figures = _run(queue.run(items, workers, _say))
    _show(output, figures, tables.queue(figures))


@bench.command(short_help="DNSRecords with more and more workers.")
@click.option(
    "-n", "count", type=click.IntRange(1), default=500, show_default=True, help="Records each time."
)
@click.option(
    "--workers", type=click.IntRange(1), multiple=True, default=(1, 2, 4, 8), show_default=True,
    help="How many processes; repeatable.",
)  # fmt: skip
@click.option("--clusters", type=click.IntRange(0), default=0, help="So many clusters instead, simulated.")
@click.option(
    "--objects",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="With --clusters: objects of each.",
)
@click.option(
    "--nats-servers",
    type=click.Choice(["1", "3"]),
    default="1",
    show_default=True,
    help="With --clusters: three are restarted one after the other, too.",
)
@click.option(
    "--idle",
    type=click.FloatRange(0.1),
    default=30.0,
    show_default=True,
    help="With --clusters: seconds to measure idleness.",
)
@output_option
def scale(
    count: int,
    workers: tuple[int, ...],
    clusters: int,
    objects: int,
    nats_servers: str,
    idle: float,
    output: str,
) -> None:
    """DNSRecords with more and more worker processes: throughput, and the share of each.

    With --clusters, so many clusters join, are idle, get objects, and are there when all processes restart.
    Their API servers are simulated.
    """
    from tools.bench import clusters as many
    from tools.bench import scale, tables

    if clusters:
        figures = _run(many.run(clusters, objects, idle, int(nats_servers), _say))
        _show(output, figures, *many.shown(figures))
        return
    found = _run(scale.run(count, workers, _say))
    _show(output, found, tables.scale(found))


@bench.command(short_help="Load balancers: from the API to clients.")
@click.option(
    "-n", "times", type=click.IntRange(1), default=20, show_default=True, help="How often each is measured."
)
@click.option("--simulated", is_flag=True, help="Simulated nodes, also where real ones could be had.")
@click.option("--scale", "crowded", is_flag=True, help="Many on one edge instead: memory, idleness.")
@click.option("--kills", is_flag=True, help="Envoy is killed instead, also on a busy machine.")
@click.option("--waiting", type=click.IntRange(0), default=0, help="So many wait for an address instead.")
@click.option("--hibernation", is_flag=True, help="A Shoot is hibernated and woken instead (Linux, root).")
@click.option(
    "--services",
    type=click.IntRange(1),
    multiple=True,
    default=(24, 1000),
    show_default=True,
    help="With --scale: how many on one edge; repeatable.",
)
@click.option(
    "--idle",
    type=click.FloatRange(0.1),
    default=30.0,
    show_default=True,
    help="With --scale: seconds to measure idleness.",
)
@output_option
def loadbalancer(
    times: int,
    simulated: bool,
    crowded: bool,
    kills: bool,
    waiting: int,
    hibernation: bool,
    services: tuple[int, ...],
    idle: float,
    output: str,
) -> None:
    """Load balancers from the API to clients, and what those who are connected notice of changes."""
    from tools.bench import (
        loadbalancers,
        loadbalancers_figures,
        loadbalancers_hibernation,
        loadbalancers_kills,
        loadbalancers_scale,
        loadbalancers_waiting,
    )

    figures: Any
    shown: Sequence[RenderableType]
    if waiting:
        figures = _run(loadbalancers_waiting.run(waiting, _say))
        shown = [loadbalancers_figures.waiting_table(figures)]
    elif kills:
        figures = _run(loadbalancers_kills.run(times, _say))
        shown = loadbalancers_figures.measured_tables("From Envoy's end to a client served", figures)
    elif hibernation:
        figures = _run(loadbalancers_hibernation.run(times, _say))
        shown = loadbalancers_figures.measured_tables("From nodes that are Ready to clients served", figures)
    elif crowded:
        figures = _run(loadbalancers_scale.run(services, times, idle, _say))
        shown = loadbalancers_figures.scale_tables(figures)
    else:
        figures = _run(loadbalancers.run(times, _say, simulated=simulated))
        shown = loadbalancers_figures.latencies(figures)
    _show(output, figures, *shown)


@bench.command(short_help="Infrastructures, which make objects.")
@click.option("-n", "count", type=click.IntRange(1), default=200, show_default=True, help="How many at once.")
@click.option(
    "--singles", type=click.IntRange(1), default=30, show_default=True, help="How many one after the other."
)
@_together
@_first
@output_option
def extensions(count: int, singles: int, together: bool, first: bool, output: str) -> None:
    """Infrastructures: many at once, one by one, the same again, restart over them."""
    from tools.bench import extensions, extensions_figures

    figures = _run(extensions.run(count, singles, _options(together), _say, first=first))
    _show(output, figures, *extensions_figures.shown(figures))


@bench.command(short_help="ControlPlanes, and their secrets.")
@click.option("-n", "count", type=click.IntRange(1), default=200, show_default=True, help="How many at once.")
@click.option(
    "--singles", type=click.IntRange(1), default=10, show_default=True, help="How many one after the other."
)
@output_option
def controlplane(count: int, singles: int, output: str) -> None:
    """ControlPlanes: many at once, one by one, the same again, a rotation, restart over them."""
    from tools.bench import controlplanes

    figures = _run(controlplanes.run(count, singles, _say))
    _show(output, figures, *controlplanes.shown(figures))


@bench.command(short_help="Machines, which become nodes.")
@click.option("-n", "count", type=click.IntRange(1), default=20, show_default=True, help="How many at once.")
@click.option(
    "--singles", type=click.IntRange(1), default=10, show_default=True, help="How many one after the other."
)
@click.option("--scale", "crowded", is_flag=True, help="Many MachineDeployments instead, without Pods.")
@click.option(
    "--machines", "total", type=click.IntRange(1), default=1000, show_default=True, help="With --scale."
)
@click.option("--namespaces", type=click.IntRange(1), default=50, show_default=True, help="With --scale.")
@output_option
def machines(count: int, singles: int, crowded: bool, total: int, namespaces: int, output: str) -> None:
    """Machines: one by one, many at once, and their end. Kubelets are simulated.

    With --scale, MachineDeployments of many namespaces at once: made, rolled, deleted.
    """
    from tools.bench import machines, machines_scale

    figures: Any
    if crowded:
        figures = _run(machines_scale.run(total, min(namespaces, total), _say))
        shown = machines_scale.shown(figures)
    else:
        figures = _run(machines.run(count, singles, _say))
        shown = machines.shown(figures)
    _show(output, figures, *shown)


@bench.command(short_help="Neighbours of a provider that answers late.")
@click.option(
    "-n", "count", type=click.IntRange(1), default=50, show_default=True, help="Objects at the slow provider."
)
@click.option(
    "--delay",
    type=click.FloatRange(0),
    default=14.0,
    show_default=True,
    help="Seconds until its API answers.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=25,
    show_default=True,
    help="Reconciles of each kind of neighbour, in each phase of each turn.",
)
@click.option(
    "--turns",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="How often the phases, alone and beside the provider, alternate.",
)
@output_option
def fairness(count: int, delay: float, rounds: int, turns: int, output: str) -> None:
    """Reconciles of well-behaved objects, alone and beside those of a provider that answers late."""
    from tools.bench import fairness

    found = _run(fairness.run(count, delay, rounds, turns, _say))
    _latencies("Neighbours of a slow provider", found, output)


@bench.command(short_help="Webhooks that an API server asks.")
@click.option(
    "--rate", type=click.FloatRange(1), default=200.0, show_default=True, help="Requests each second."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=20.0,
    show_default=True,
    help="How long, for each.",
)
@click.option(
    "--api-servers",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="API servers of Shoots that ask at once.",
)
@_first
@output_option
def admit(rate: float, seconds: float, api_servers: int, first: bool, output: str) -> None:
    """Creations about which the API server asks webhooks, beside others about which it asks nobody."""
    from tools.bench import admission, tables

    found = _run(admission.run(rate, seconds, api_servers, first, _say))
    _show(output, found, tables.admission(found))


@bench.command(short_help="Neighbours of hostile objects.")
@click.option("-n", "count", type=click.IntRange(1), default=1000, show_default=True, help="Hostile objects.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Reconciles of each neighbour before they come.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the random objects.")
@output_option
def hostile(count: int, rounds: int, seed: int, output: str) -> None:
    """Reconciles of well-behaved objects, alone and beside hostile ones of all kinds."""
    from tools.bench import hostile

    _latencies("Neighbours of hostile objects", _run(hostile.run(count, rounds, seed, _say)), output)


def _latencies(title: str, found: list[Any], output: str) -> None:
    from tools.bench import neighbours

    _show(output, found, neighbours.shown(title, found))


def _run(measurement: Coroutine[Any, Any, _T]) -> _T:
    import uvloop

    try:
        return uvloop.run(measurement)
    except ExceptionGroup as group:
        # Much fails together when a sandbox does; one sentence of it is enough.
        expected = group.subgroup(WindowboxError)
        error: Exception | None = expected
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error or group from group


def _say(doing: str) -> None:
    click.echo(f"  {doing} …", err=True)


def _show(output: str, figures: Any, *parts: RenderableType) -> None:
    """Print figures, or a list of them, as JSON or as tables."""
    from tools.bench import tables

    if output == "json":
        many = isinstance(figures, list)
        found = [dataclasses.asdict(each) for each in figures] if many else dataclasses.asdict(figures)
        click.echo(json.dumps(found, indent=2))
    else:
        tables.show(*parts)
