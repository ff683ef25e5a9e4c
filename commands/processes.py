"""The processes of a deployment: run, watch, work, edge, patch, admit, grant, setup-bus."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windowbox.settings import goflags

if TYPE_CHECKING:
    from windowbox.settings.settings import Settings

SETTINGS_HELP = """
\b
Settings come from a file (--settings), from the environment (WINDOWBOX_NATS__URL=…), and from
the flags above; the later wins. docs/settings.md lists them all."""

Command = Callable[..., Any]


def process_options(command: Command) -> Command:
    """Add the flags that every process has."""
    options: list[Callable[[Command], Command]] = [
        click.option("--settings", "file", type=click.Path(path_type=Path, exists=True), help="A YAML file."),
        click.option("--nats", "nats_url", metavar="URL", help="URL of NATS."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="The cluster to serve."),
        click.option("--metrics", metavar="HOST:PORT", help="Address of /metrics; port 0 for any."),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            help="Lowest level to log.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["auto", "human", "json", "text"]),
            help="auto: human on a terminal, json otherwise.",
        ),
    ]
    # Flags of Gardener's own provider-local are accepted, and hidden in --help.
    for flag in goflags.FLAGS:
        alone: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if flag.may_stand_alone else {}
        options.append(click.option(f"--{flag.name}", flag.parameter, multiple=True, hidden=True, **alone))
    for option in reversed(options):
        command = option(command)
    return command


_pools = click.option("--pool", "pools", multiple=True, help="A pool to serve; repeatable. Default: all.")


def _chosen(pools: tuple[str, ...], flags: dict[str, Any]) -> Collection[str]:
    """The pools that the flags name; all, if they name none."""
    from windowbox.kinds import POOLS

    for pool in pools:
        if pool not in POOLS:
            raise click.UsageError(f"no pool {pool!r}; there are: {', '.join(POOLS)}")
    return pools or goflags.pools(flags) or POOLS


@click.command(epilog=SETTINGS_HELP)
@_pools
@process_options
def run(pools: tuple[str, ...], **flags: Any) -> None:
    """Watch, work and patch in one process, for a laptop. Webhooks need `windowbox admit`.

    \b
    Example:
      windowbox run --kubeconfig ~/.kube/config --nats nats://127.0.0.1:4222
    """
    from commands.roles import patching, roleprocess, watching, working

    names = _chosen(pools, flags)

    async def assemble(made: roleprocess.Process) -> None:
        await watching.watch(made)
        await working.work(made, names)
        await patching.patch(made)

    roleprocess.main(loaded(flags), "run", assemble)


@click.command(epilog=SETTINGS_HELP)
@process_options
def watch(**flags: Any) -> None:
    """Mirror clusters to the bus. Of several watchers, one mirrors each kind; the others stand by.

    \b
    Example:
      windowbox watch --settings watch.yaml
    """
    from commands.roles import roleprocess, watching

    roleprocess.main(loaded(flags), "watch", watching.watch)


@click.command(epilog=SETTINGS_HELP)
@_pools
@process_options
def work(pools: tuple[str, ...], **flags: Any) -> None:
    """Take items off the bus and reconcile their objects. Any number of processes share the work.

    \b
    Example:
      windowbox work --pool dnsrecord --settings work.yaml
    """
    from commands.roles import roleprocess, working

    names = _chosen(pools, flags)
    roleprocess.main(loaded(flags), "work", lambda made: working.work(made, names))


@click.command(epilog=SETTINGS_HELP)
@process_options
def edge(**flags: Any) -> None:
    """Run Envoy for load balancers. Uses the bus only, as the user `edge`, and needs no kubeconfig.

    \b
    Of several on one host, one runs Envoy and the others stand by. Workers run no Envoy if their
    settings say `loadbalancer: {edge: separate}`.

    \b
    Example:
      windowbox edge --settings edge.yaml
    """
    from commands.roles import edging, roleprocess

    roleprocess.main(loaded(flags), "edge", edging.edge)


@click.command(epilog=SETTINGS_HELP)
@process_options
def patch(**flags: Any) -> None:
    """Write status back to the clusters. Any number of processes share the work.

    \b
    Example:
      windowbox patch --settings patch.yaml
    """
    from commands.roles import patching, roleprocess

    roleprocess.main(loaded(flags), "patch", patching.patch)


@click.command(epilog=SETTINGS_HELP)
@click.option("--garden", is_flag=True, help="Serve the admission of the garden instead.")
@process_options
def admit(garden: bool, **flags: Any) -> None:
    """Answer API servers that call webhooks before they store objects. Start as many as you like.

    One of the processes writes the webhook configurations and renews the certificates. Reviews are answered
    even without the bus.

    \b
    Examples:
      windowbox admit --settings admit.yaml
      windowbox admit --garden --settings admission.yaml
    """
    from commands.roles import admitting, roleprocess

    settings = loaded(flags)
    roleprocess.run(settings, "admit", lambda: admitting.run(settings, garden=garden))


@click.command(epilog=SETTINGS_HELP)
@click.option("--settings", "file", type=click.Path(path_type=Path, exists=True), help="A YAML file.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig of a user who may grant rights."
)
@click.option("--once", is_flag=True, help="Grant once and exit.")
def grant(once: bool, **flags: Any) -> None:
    """Grant the roles rights on Secrets in the namespaces of grant.namespaces, as these are created.

    \b
    Example:
      windowbox grant --once --kubeconfig admin.kubeconfig
    """
    from windowbox.clients.kubernetes import kube
    from windowbox.rights.granting import Granting
    from windowbox.telemetry import logs

    settings = loaded(flags)
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
    """Create or update the streams of the bus, as `watch` does when it starts.

    \b
    Example:
      windowbox setup-bus --nats nats://127.0.0.1:4222
    """
    from bus import streams
    from bus.transport.connection import connected

    settings = loaded(flags)

    async def act() -> list[str]:
        async with connected(settings.nats.access("windowbox setup-bus"), patience=5) as bus:
            return await streams.ensure(bus, settings.nats.replicas, settings.objects.retention)

    for line in asyncio.run(act()) or ["all streams are up to date"]:
        click.echo(line)


def loaded(flags: dict[str, Any]) -> Settings:
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
