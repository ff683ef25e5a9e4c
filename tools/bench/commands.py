"""`windowbox bench`: the benchmarks as commands."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.options import output_option
from windowbox.errors import WindowboxError

if TYPE_CHECKING:
    from sandbox.options import Options
    from tools.bench.report import Report


@click.group(
    invoke_without_command=True,
    epilog="\b\nExamples:\n"
    "  windowbox bench                          all of them\n"
    "  windowbox bench dnsrecords -n 10000      many records\n"
    "  windowbox bench loadbalancer --scale     a thousand Services on one Envoy\n"
    "  windowbox bench scale --clusters 1000    a thousand clusters\n"
    "  windowbox bench extensions -n 50         fifty Infrastructures at once\n"
    "  windowbox bench versus                   beside Gardener's own program\n"
    "  windowbox bench fairness                 beside a provider that answers late\n"
    "  windowbox bench bus -o json | jq .items_per_second",
)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure how fast this machine is. Each measurement runs in a sandbox of its own."""
    if ctx.invoked_subcommand is None:
        for command in bench.commands.values():
            # Root, port 53 and Gardener's program are not everywhere: only when asked for.
            if command is not versus:
                ctx.invoke(command)


def _count(name: str, default: int, help: str, *flags: str, least: int = 1) -> Callable[..., Any]:
    """An option for a number of things."""
    type_ = click.IntRange(least)
    return click.option(*(flags or ("-n",)), name, type=type_, default=default, show_default=True, help=help)


def _seconds(flag: str, default: float, help: str, least: float = 0.1) -> Callable[..., Any]:
    return click.option(flag, type=click.FloatRange(least), default=default, show_default=True, help=help)


_together = click.option(
    "--together", is_flag=True, help="One `windowbox run` in place of a process for each role."
)
_first = click.option(
    "--first", is_flag=True, help="Run measured processes before other processes (Linux, root)."
)


def _options(together: bool) -> Options:
    from sandbox.options import TOGETHER, Options

    return Options.model_validate(TOGETHER if together else {})


def _run(output: str, measurement: Coroutine[Any, Any, Report]) -> None:
    """Run a benchmark, and show its report."""
    import uvloop

    try:
        report = uvloop.run(measurement)
    except ExceptionGroup as group:
        # When a sandbox fails, many tasks fail with it: the first expected error says enough.
        error: Exception | None = group.subgroup(WindowboxError)
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error or group from group
    report.show(output)


@bench.command(short_help="Infrastructures of clouds beside those of type local.")
@_count("local", 100, "Infrastructures of type local.", "--local")
@_count("of_each", 100, "Infrastructures of each cloud.", "--each")
@output_option
def clouds(local: int, of_each: int, output: str) -> None:
    """Create Infrastructures of type local alone, then beside those of six clouds, all at once."""
    from tools.bench.clouds import crowd

    _run(output, crowd.measure(local, of_each))


@bench.command(short_help="DNSRecords: from the API to DNS and back.")
@_count("count", 1000, "How many records.")
@_seconds("--idle", 30.0, "Seconds to measure idleness.")
@_together
@_first
@click.option("--profile", is_flag=True, help="Show the CPU of each step of windowbox instead.")
@output_option
def dnsrecords(count: int, idle: float, together: bool, first: bool, profile: bool, output: str) -> None:
    """Create, change and delete DNSRecords; restart with them; be idle."""
    from tools.bench import dnsrecords

    options = _options(together)
    if profile:
        _run(output, dnsrecords.profiled(count, options))
    else:
        _run(output, dnsrecords.records(count, idle, options, first=first))


@bench.command(short_help="The queue alone, with empty runs.")
@_count("items", 20000, "How many items.")
@_count("workers", 1, "How many processes.", "--workers")
@click.option(
    "--churn", type=click.IntRange(0), default=0, help="Let this many Machines come and go instead."
)
@output_option
def bus(items: int, workers: int, churn: int, output: str) -> None:
    """Items through the queue and the worker runtime, with empty runs.

    With --churn: what Machines that came and went leave in the streams.
    """
    from tools.bench.bus import churn as churning
    from tools.bench.bus import emptyruns

    _run(output, churning.measure(churn) if churn else emptyruns.measure(items, workers))


@bench.command(short_help="DNSRecords with more and more workers.")
@_count("count", 500, "Records each time.")
@click.option(
    "--workers", type=click.IntRange(1), multiple=True, default=(1, 2, 4, 8), show_default=True,
    help="How many processes; repeatable.",
)  # fmt: skip
@click.option(
    "--clusters", type=click.IntRange(0), default=0, help="Measure this many simulated clusters instead."
)
@_count("objects", 100, "With --clusters: objects of each.", "--objects", least=0)
@click.option(
    "--nats-servers", type=click.Choice(["1", "3"]), default="1", show_default=True,
    help="With --clusters: three are also restarted one after the other.",
)  # fmt: skip
@_seconds("--idle", 30.0, "With --clusters: seconds to measure idleness.")
@output_option
def scale(
    count: int, workers: tuple[int, ...], clusters: int, objects: int, nats_servers: str, idle: float,
    output: str,
) -> None:  # fmt: skip
    """DNSRecords with more and more worker processes: throughput, and the share of each.

    With --clusters: that many clusters join, are idle and get objects; then all processes restart.
    Their API servers are simulated.
    """
    from tools.bench import dnsrecords, manyclusters

    if clusters:
        _run(output, manyclusters.measure(clusters, objects, idle, int(nats_servers)))
    else:
        _run(output, dnsrecords.with_more_workers(count, workers))


@bench.command(short_help="Load balancers: from the API to clients.")
@_count("times", 20, "How often each is measured.")
@click.option("--simulated", is_flag=True, help="Simulated nodes, even where real ones are possible.")
@click.option("--scale", "crowded", is_flag=True, help="Measure many on one edge instead: memory, idle CPU.")
@click.option("--kills", is_flag=True, help="Kill Envoy instead, also on a busy machine.")
@click.option(
    "--waiting",
    type=click.IntRange(0),
    default=0,
    help="Measure this many Services without an address instead.",
)
@click.option("--hibernation", is_flag=True, help="Hibernate and wake a Shoot instead (Linux, root).")
@click.option(
    "--nodes",
    type=click.IntRange(0),
    default=0,
    help="Change one of this many nodes of 2,750 ports, or with one --services, of so many of one port.",
)
@click.option(
    "--services", type=click.IntRange(1), multiple=True, default=(24, 1000), show_default=True,
    help="With --scale: how many on one edge; repeatable.",
)  # fmt: skip
@_seconds("--idle", 30.0, "With --scale: seconds to measure idleness.")
@_first
@output_option
def loadbalancer(
    times: int, simulated: bool, crowded: bool, kills: bool, waiting: int, hibernation: bool, nodes: int,
    services: tuple[int, ...], idle: float, first: bool, output: str,
) -> None:  # fmt: skip
    """Load balancers from the API to clients, and what connected clients notice of changes."""
    from tools.bench.loadbalancers import crowd, lives, nodechanges, waiters, wakeups
    from tools.bench.loadbalancers import kills as killing

    if waiting:
        _run(output, waiters.measure(waiting))
    elif nodes:
        many, ports = (services[0], 1) if len(services) == 1 else (11, 250)
        _run(output, nodechanges.measure(many, ports, nodes, times, first=first))
    elif kills:
        _run(output, killing.measure(times))
    elif hibernation:
        _run(output, wakeups.measure(times))
    elif crowded:
        _run(output, crowd.measure(services, times, idle))
    else:
        _run(output, lives.measure(times, simulated=simulated))


@bench.command(short_help="Infrastructures, which create objects.")
@_count("count", 200, "How many at once.")
@_count("singles", 30, "How many one after the other.", "--singles")
@_together
@_first
@output_option
def extensions(count: int, singles: int, together: bool, first: bool, output: str) -> None:
    """Infrastructures: many at once, one by one, the same again, restart with them; then Bastions."""
    from tools.bench import extensions

    _run(output, extensions.infrastructures(count, singles, _options(together), first=first))


@bench.command(short_help="Runs and requests of one object of each kind.")
@output_option
def echoes(output: str) -> None:
    """Create, reconcile and delete the examples of all kinds: runs with their causes, and requests."""
    from tools.bench.owned import echoes

    _run(output, echoes.measure())


@bench.command(short_help="One Infrastructure while the cluster of many joins.")
@_count("count", 200, "How many Shoots have objects in that cluster.")
@output_option
def joining(count: int, output: str) -> None:
    """Infrastructures one after the other, while a provider cluster with the objects of many Shoots joins."""
    from tools.bench.owned import joining

    _run(output, joining.measure(count))


@bench.command(short_help="ControlPlanes, and their secrets.")
@_count("count", 200, "How many at once.")
@_count("singles", 10, "How many one after the other.", "--singles")
@output_option
def controlplane(count: int, singles: int, output: str) -> None:
    """ControlPlanes: many at once, one by one, the same again, a rotation, restart with them."""
    from tools.bench import extensions

    _run(output, extensions.controlplanes(count, singles))


@bench.command(short_help="Machines, which become nodes.")
@_count("count", 20, "How many at once.")
@_count("singles", 10, "How many one after the other.", "--singles")
@click.option("--scale", "crowded", is_flag=True, help="Many MachineDeployments instead, without Pods.")
@_count("total", 1000, "With --scale.", "--machines")
@_count("namespaces", 50, "With --scale.", "--namespaces")
@output_option
def machines(count: int, singles: int, crowded: bool, total: int, namespaces: int, output: str) -> None:
    """Machines: one by one, many at once, and their deletion. Kubelets are simulated.

    With --scale, MachineDeployments of many namespaces at once: created, rolled, deleted.
    """
    from tools.bench import machines, machinesets

    if crowded:
        _run(output, machinesets.measure(total, min(namespaces, total)))
    else:
        _run(output, machines.measure(count, singles))


@bench.command(short_help="Beside Gardener's own provider-local.")
@click.option(
    "--program", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Gardener's provider-local; by default that of the tests.",
)  # fmt: skip
@_count("objects", 700, "How many DNSRecords.", "--objects")
@_count("shoots", 100, "How many Infrastructures at once; 0: none.", "--shoots", least=0)
@_count("rounds", 3, "How often the two programs alternate.", "--rounds")
@output_option
def versus(program: Path | None, objects: int, shoots: int, rounds: int, output: str) -> None:
    """The same objects served by Gardener's own program and by `windowbox run`, in turn (Linux, root).

    Gardener's program runs five reconciles of each kind at once, without its client-side limit of requests.
    """
    from tools.bench.versus import turns

    _run(output, turns.measure(program, objects, shoots, rounds))


@bench.command(short_help="Neighbours of a provider that answers late.")
@_count("count", 50, "Objects at the slow provider.")
@_seconds("--delay", 14.0, "Seconds until its API answers.", 0)
@_count("rounds", 25, "Reconciles of each kind of neighbour, in each phase of each turn.", "--rounds")
@_count("turns", 4, "How often the phases, alone and beside the provider, alternate.", "--turns")
@output_option
def fairness(count: int, delay: float, rounds: int, turns: int, output: str) -> None:
    """Reconciles of well-behaved objects, alone and beside those of a provider that answers late."""
    from tools.bench import neighbours

    _run(output, neighbours.of_a_slow_provider(count, delay, rounds, turns))


@bench.command(short_help="Webhooks that an API server calls.")
@_seconds("--rate", 200.0, "Requests each second.", 1)
@_seconds("--seconds", 20.0, "How long, for each.")
@_count("api_servers", 4, "API servers of Shoots that call at once.", "--api-servers")
@_first
@output_option
def admit(rate: float, seconds: float, api_servers: int, first: bool, output: str) -> None:
    """Creations for which the API server calls webhooks, beside the same without."""
    from tools.bench import admission

    _run(output, admission.measure(rate, seconds, api_servers, first=first))


@bench.command(short_help="Memory of the processes.")
@_count("count", 1000, "How many records.")
@click.option("--pods", is_flag=True, help="Measure an idle installation of the chart instead (Linux, root).")
@output_option
def memory(count: int, pods: bool, output: str) -> None:
    """What the imports of each role take, and what each process has, idle and with records."""
    if pods:
        from tools.bench.memory import pods as installation

        _run(output, installation.measure())
        return
    from tools.bench.memory import roles

    _run(output, roles.measure(count))


@bench.command(short_help="Neighbours of hostile objects.")
@_count("count", 1000, "Hostile objects.")
@_count("rounds", 100, "Reconciles of each neighbour before they come.", "--rounds")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the random objects.")
@output_option
def hostile(count: int, rounds: int, seed: int, output: str) -> None:
    """Reconciles of well-behaved objects, alone and beside hostile ones of all kinds."""
    from tools.bench import neighbours

    _run(output, neighbours.beside_hostile_objects(count, rounds, seed))


@bench.command(short_help="Checks of Shoots by their clouds' rules.")
@_count("count", 2000, "How many Shoots of each cloud.")
@output_option
def validate(count: int, output: str) -> None:
    """Check the examples of all clouds in one process, and start `windowbox validate` with each."""
    from tools.bench.clouds import validation

    validation.measure(count).show(output)
