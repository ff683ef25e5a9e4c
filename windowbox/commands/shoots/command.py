"""`windowbox shoot create`, `list`, `kubeconfig` and `delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windowbox.commands.sandbox import name_option
from windowbox.errors import Missing, Unreachable

if TYPE_CHECKING:
    from windowbox.sandbox.shoots.creation import Sandbox

_MOST = 20


@click.group()
def shoot() -> None:
    """Clusters whose nodes are machines of the sandbox (Linux, as root).

    Each has an API server of its own; windowbox makes its machines from a Worker, as for a platform.
    """


@shoot.command(
    epilog="\b\nExamples:\n"
    "  windowbox shoot create one\n"
    "  windowbox shoot create one --workers 5\n"
    '  kubectl --kubeconfig "$(windowbox shoot kubeconfig one)" get nodes'
)
@click.argument("shoot_name", metavar="NAME")
@click.option(
    "--workers", type=click.IntRange(1, _MOST), default=2, show_default=True, help="How many machines."
)
@name_option
def create(shoot_name: str, workers: int, name: str | None) -> None:
    """Create the Shoot NAME, and wait until all its machines are Ready nodes."""
    from windowbox.sandbox.progress import Progress
    from windowbox.sandbox.shoots import creation

    sandbox = _sandbox(name)
    click.echo(f"Creating the shoot {shoot_name!r} with {workers} machines")
    option = f" --name {name}" if name else ""
    try:
        creation.create(sandbox, shoot_name, workers, Progress(click.echo), say)
    except Unreachable:
        click.echo(f"To begin anew: `windowbox shoot delete {shoot_name}{option}`", err=True)
        raise
    click.echo(f"""
What next:
  export KUBECONFIG="$(windowbox shoot kubeconfig {shoot_name}{option})"
  kubectl create deployment web --image windowbox.local/echo:1 -- /echo --tcp=8080
  kubectl expose deployment web --type LoadBalancer --port 80 --target-port 8080
  windowbox shoot delete {shoot_name}{option}""")


@shoot.command("list")
@name_option
def list_(name: str | None) -> None:
    """List the Shoots of the sandbox, with their API servers and nodes."""
    from windowbox.sandbox.shoots import creation, records

    sandbox = _sandbox(name)
    names = records.names(sandbox.folder)
    if not names:
        click.echo("No shoots: `windowbox shoot create NAME` makes one.")
        return
    click.echo(f"{'NAME':<16} {'NODES READY':<12} API SERVER")
    for one in names:
        url, ready = creation.nodes(sandbox, records.read(sandbox.folder, one))
        click.echo(f"{one:<16} {ready:<12} {url}")


@shoot.command(epilog='\b\nExample:\n  kubectl --kubeconfig "$(windowbox shoot kubeconfig one)" get nodes')
@click.argument("shoot_name", metavar="NAME")
@name_option
def kubeconfig(shoot_name: str, name: str | None) -> None:
    """Print the path of an administrator's kubeconfig of the Shoot NAME."""
    from windowbox.sandbox import state as states
    from windowbox.sandbox.shoots import records

    folder = states.folder(name).absolute()
    records.read(folder, shoot_name)
    click.echo(records.kubeconfig(folder, shoot_name))


@shoot.command(epilog="\b\nExample:\n  windowbox shoot delete one")
@click.argument("shoot_name", metavar="NAME")
@name_option
def delete(shoot_name: str, name: str | None) -> None:
    """Delete the Shoot NAME: its machines, then its control plane and data. Safe to repeat."""
    from windowbox.sandbox.shoots import deletion

    sandbox = _sandbox(name)
    click.echo(f"Deleting the shoot {shoot_name!r}")
    deletion.delete(sandbox, shoot_name, say)


def say(what: str, seconds: float) -> None:
    click.echo(f"  {click.style('✓', fg='green')} {seconds:5.1f} s  {what}")


def _sandbox(name: str | None) -> Sandbox:
    from windowbox.sandbox import detached
    from windowbox.sandbox import state as states
    from windowbox.sandbox.shoots import creation

    folder = states.folder(name)
    state = detached.running(folder)
    if not state.options.nodes:
        raise Missing(
            f"the sandbox {folder.name!r} has no real nodes, in which machines could live: "
            f"`{states.command('down', folder)}`, then `windowbox up --nodes 2` (Linux, as root)"
        )
    return creation.detached(folder, state)
