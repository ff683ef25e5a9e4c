"""`windowbox shoot` and `windowbox machine`: clusters whose nodes are machines of the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from commands import memberclusters
from commands.options import name_option
from sandbox import detached, roles
from sandbox import state as states
from sandbox.progress import Progress
from sandbox.shoots import chain, consoles, creation, deletion, hibernation, observing, records
from sandbox.shoots.chain import State
from sandbox.shoots.creation import Sandbox
from windowbox.errors import Missing, Unreachable
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.settings import settings

_MOST = 20
_REFRESH = 0.5
"""Seconds between two pictures of a Shoot's chain: some links have no watch."""

_shoot_argument = click.argument("shoot_name", metavar="SHOOT")


@click.group(
    epilog="\b\nExamples:\n  windowbox shoot create one\n  windowbox shoot list\n"
    "  windowbox shoot hibernate one\n  windowbox shoot wake one\n  windowbox shoot delete one"
)
def shoot() -> None:
    """Shoots: clusters whose nodes are machines (Linux, as root).

    A machine is a privileged Pod on a real node of the sandbox. Each Shoot has its own kube-apiserver.
    `create` writes what Gardener writes (Cluster, Infrastructure, ControlPlane, OperatingSystemConfig,
    Worker); windowbox makes the machines from that.
    """


@shoot.command(
    short_help="Create a Shoot, and wait for its nodes.",
    epilog="\b\nExamples:\n"
    "  windowbox shoot create one\n"
    "  windowbox shoot create one --workers 5\n"
    "  windowbox shoot create two --cloud aws\n"
    '  kubectl --kubeconfig "$(windowbox shoot kubeconfig one)" get nodes',
)
@_shoot_argument
@click.option(
    "--workers", type=click.IntRange(1, _MOST), default=2, show_default=True, help="How many machines."
)
@click.option(
    "--cloud",
    type=click.Choice(["local", *CLOUD_TYPES]),
    default="local",
    show_default=True,
    help="Its type. windowbox plays clouds: nothing outside this machine is asked.",
)
@name_option
def create(shoot_name: str, workers: int, cloud: str, name: str | None) -> None:
    """Create a Shoot, and wait until all its machines are Ready nodes."""
    sandbox = _sandbox(name)
    records.check_new(sandbox.folder, shoot_name)
    of_cloud = "" if cloud == "local" else f" of type {cloud}"
    click.echo(f"Creating the shoot {shoot_name!r}{of_cloud} with {workers} machines")
    option = _option(name)
    try:
        creation.create(sandbox, shoot_name, workers, Progress(click.echo), say, cloud if of_cloud else "")
    except Unreachable:
        click.echo(f"To start over: `windowbox shoot delete {shoot_name}{option}`", err=True)
        raise
    click.echo(f"""
What next:
  export KUBECONFIG="$(windowbox shoot kubeconfig {shoot_name}{option})"
  kubectl create deployment web --image windowbox.local/echo:1 -- /echo --tcp=8080
  kubectl expose deployment web --type LoadBalancer --port 80 --target-port 8080
  windowbox shoot delete {shoot_name}{option}""")


@shoot.command("list", short_help="List Shoots, their API servers and nodes.")
@name_option
def list_(name: str | None) -> None:
    """List the Shoots of the sandbox, with their API servers and nodes."""
    sandbox = _sandbox(name)
    names = records.names(sandbox.folder)
    if not names:
        click.echo("No shoots: `windowbox shoot create NAME` makes one.")
        return
    click.echo(f"{'NAME':<16} {'NODES READY':<12} API SERVER")
    for one in names:
        url, ready = creation.nodes(sandbox, records.read(sandbox.folder, one))
        click.echo(f"{one:<16} {ready:<12} {url}")


@shoot.command(
    short_help="Show what a Shoot consists of, and what it waits for.",
    epilog="\b\nExamples:\n  windowbox shoot status one\n  windowbox shoot status one --wait 120",
)
@_shoot_argument
@click.option(
    "--wait", type=click.FloatRange(0), default=0.0, help="Seconds to wait until every link is done."
)
@name_option
def status(shoot_name: str, wait: float, name: str | None) -> None:
    """Show all links of a Shoot's chain, from its objects to its nodes, and which link waits for which.

    For a link that has waited for 60 s, it names the blocking object and the next step. Ends with 1 if a
    link is not done.
    """
    sandbox, limit = _sandbox(name), time.monotonic() + wait
    while True:
        shoot = records.read(sandbox.folder, shoot_name)
        operator = settings.load(roles.settings_file(sandbox.folder, "operator"))
        members = asyncio.run(memberclusters.listed(operator))
        membership = next((one for one in members if one["id"] == shoot.technical_id), None)
        try:
            links = chain.chain(observing.observe(sandbox, shoot, membership))
        except Unreachable as error:
            hint = "see `windowbox status` and `windowbox logs kube-apiserver`"
            raise Unreachable(f"{error}; {hint}") from error
        done = all(link.state in (State.DONE, State.NONE) for link in links)
        if done or time.monotonic() >= limit:
            break
        time.sleep(_REFRESH)
    click.echo("\n".join([f"shoot {shoot_name}", *chain.picture(links, datetime.now(UTC))]))
    if not done:
        raise SystemExit(1)


@shoot.command(
    short_help="Print the path of a Shoot's kubeconfig.",
    epilog='\b\nExample:\n  kubectl --kubeconfig "$(windowbox shoot kubeconfig one)" get nodes',
)
@_shoot_argument
@name_option
def kubeconfig(shoot_name: str, name: str | None) -> None:
    """Print the path of an administrator's kubeconfig of a Shoot."""
    folder = states.folder(name).absolute()
    records.read(folder, shoot_name)
    click.echo(records.kubeconfig(folder, shoot_name))


@shoot.command(
    short_help="End a Shoot's machines and control plane, until it is woken up.",
    epilog="\b\nExample:\n  windowbox shoot hibernate one",
)
@_shoot_argument
@name_option
def hibernate(shoot_name: str, name: str | None) -> None:
    """Hibernate a Shoot: its machines end, then its control plane. Safe to interrupt and to repeat.

    Pods are deleted whatever their budgets say. Volumes, which are folders of the machines, are lost.
    Objects and the addresses of load balancers are kept: `windowbox shoot wake` starts it all again.
    """
    sandbox = _sandbox(name)
    click.echo(f"Hibernating the shoot {shoot_name!r}")
    with _repeatable(f"windowbox shoot hibernate {shoot_name}{_option(name)}"):
        hibernation.hibernate(sandbox, shoot_name, say)
    click.echo(f"To wake it up: `windowbox shoot wake {shoot_name}{_option(name)}`")


@shoot.command(
    short_help="Wake a hibernated Shoot up, and wait for its nodes.",
    epilog="\b\nExample:\n  windowbox shoot wake one",
)
@_shoot_argument
@name_option
def wake(shoot_name: str, name: str | None) -> None:
    """Start a hibernated Shoot's control plane and machines again. Safe to interrupt and to repeat."""
    sandbox = _sandbox(name)
    click.echo(f"Waking the shoot {shoot_name!r} up")
    with _repeatable(f"windowbox shoot wake {shoot_name}{_option(name)}"):
        hibernation.wake(sandbox, shoot_name, say)


@shoot.command(short_help="Delete a Shoot and its data.", epilog="\b\nExample:\n  windowbox shoot delete one")
@_shoot_argument
@name_option
def delete(shoot_name: str, name: str | None) -> None:
    """Delete a Shoot: its machines, then its control plane and data. Safe to repeat."""
    sandbox = _sandbox(name)
    records.read(sandbox.folder, shoot_name)
    click.echo(f"Deleting the shoot {shoot_name!r}")
    deletion.delete(sandbox, shoot_name, say)


def say(what: str, seconds: float) -> None:
    """A line about a step that is done."""
    click.echo(step(what, seconds))


def step(what: str, seconds: float) -> str:
    return f"  {click.style('✓', fg='green')} {seconds:5.1f} s  {what}"


@contextlib.contextmanager
def _repeatable(command: str) -> Iterator[None]:
    """After a timeout or an interruption, print the command that continues."""
    try:
        yield
    except (Unreachable, KeyboardInterrupt):
        click.echo(f"To continue: `{command}`", err=True)
        raise


def _option(name: str | None) -> str:
    """The option that selects the same sandbox in a suggested command."""
    return f" --name {name}" if name else ""


def _sandbox(name: str | None) -> Sandbox:
    folder = states.folder(name)
    state = detached.running(folder)
    if not state.options.nodes:
        raise Missing(
            f"the sandbox {folder.name!r} has no real nodes, in which machines could run: "
            f"`{states.command('down', folder)}`, then `windowbox up --nodes 2` (Linux, as root)"
        )
    return creation.detached(folder, state)


@click.group(epilog="\b\nExample:\n  windowbox machine logs")
def machine() -> None:
    """Console logs of the machines of Shoots. For their objects: `kubectl get machines -A`."""


@machine.command(
    short_help="Print a machine's console log.",
    epilog="\b\nExamples:\n"
    "  windowbox machine logs                          list the machines\n"
    "  windowbox machine logs shoot--local--one-small-local-7d9f4-x2x5k",
)
@click.argument("machine_name", metavar="MACHINE", required=False)
@name_option
def logs(machine_name: str | None, name: str | None) -> None:
    """Print the console log of MACHINE (user data, units, node agent), or list the machines that have one.

    Logs are kept for one day after the machine is deleted.
    """
    folder = states.folder(name).absolute() / "machines"
    if machine_name is None:
        for one in consoles.machines(folder):
            click.echo(one.removeprefix("machine-"))
        return
    for line in consoles.lines(folder, machine_name):
        click.echo(line)
