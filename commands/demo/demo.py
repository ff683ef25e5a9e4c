"""`windowbox demo`: starts a sandbox, and shows one part of the demo after the other."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click

from commands import sandbox
from commands.demo import showbalancer, showkinds, showshoot
from commands.demo.stage import Scene
from commands.formatting import aligned
from commands.sandbox import download_option, name_option, role_counts
from sandbox import detached, prerequisites
from sandbox import state as states
from sandbox.nodes import hostresources
from sandbox.programs import obtain
from sandbox.progress import ONCE, Progress
from sandbox.state import State


@click.command(epilog="\b\nExample:\n  windowbox demo && windowbox down")
@name_option
@download_option
def demo(name: str | None, download: bool) -> None:
    """Start the sandbox, apply examples/*.yaml, and show each step with the time it took.

    \b
    1. DNS records.
    2. With real nodes (Linux, as root): a load balancer, while a node fails and ports change.
    3. An Infrastructure and a Bastion: deleted objects are recreated, deletion leaves nothing behind.
    4. A kubelet's setting, which a webhook changes before it is stored.
    5. With real nodes: a Shoot with two machines, which are replaced while clients are connected.

    Missing programs are built once; DNS records are shown meanwhile. The sandbox keeps running. A second demo
    shows the same.
    """
    folder = states.folder(name)
    state = _started(folder, download)
    for show, without_nodes in (
        (showbalancer.show, showbalancer.WITHOUT_NODES),
        (showkinds.show_owners, ""),
        (showkinds.show_webhook, ""),
        (showshoot.show, showshoot.WITHOUT_NODES),
    ):
        if not without_nodes or state.options.nodes:
            show(Scene(folder, state))
        elif reason := hostresources.impossible():
            left_out(without_nodes, f"They need real nodes, and those need {reason}")
        else:
            down = states.command("down", folder)
            remedy = f"`{down}`, then repeat the demo"
            left_out(without_nodes, f"They need real nodes, and this sandbox was started without: {remedy}")
    option = f" --name {name}" if name else ""
    hints = {
        f"windowbox trace dnsrecord demo/api-ipv4{option}": "the history of one record",
        f"windowbox trace infra {showkinds.SHOOT}/one{option}": "objects created and deleted for it",
        f"windowbox lb list{option}": "load balancers and their health",
        f'eval "$(windowbox env{option})" && kubectl get dnsrecords -A': "",
        f"windowbox down{option}": "end the sandbox; data is kept",
    }
    # After `make demo`, the shell does not find `windowbox` yet.
    script = Path(sys.prefix, "bin", "activate")
    if not shutil.which("windowbox") and script.exists():
        near = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
        hints = {f". {near}": "let this shell find windowbox", **hints}
    click.echo("\nTry next:\n" + aligned(hints))


def left_out(what: str, reason: str) -> None:
    """Say which part is not shown, and why."""
    click.echo(f"\nLeft out: {what}. {reason}")


def _started(folder: Path, download: bool) -> State:
    """Start the sandbox, with real nodes where possible, and show the records on the way."""
    progress, before = Progress(click.echo, introduction=ONCE), states.read(folder)
    if before and before.running():
        prerequisites.gather([*prerequisites.SERVERS, *prerequisites.TOOLS], progress, download=download)
        return _up(folder, {}, show_records=True)
    prerequisites.gather(
        prerequisites.SERVERS, progress, nodes=not hostresources.unsuited(), download=download
    )
    nodes = {"simulated_nodes": 2} if hostresources.impossible() else {"nodes": hostresources.usual()}
    chosen = {**nodes, **role_counts({}, separate=False, running=False), "admits": 1}
    later = prerequisites.programs(nodes="nodes" in chosen, simulated="simulated_nodes" in chosen)
    if not obtain.lacking(later):
        return _up(folder, chosen, show_records=True)
    # Show records while the programs of nodes are built, then start once more, with nodes.
    try:
        with prerequisites.in_background(later, progress, download=download) as wait:
            click.echo("Records need no nodes: they are shown while the programs of nodes are compiled.")
            _up(folder, {**chosen, "nodes": 0, "simulated_nodes": 0, "admits": 0}, show_records=True)
            click.echo("")
            wait()
    except BaseException:
        # Without this, the next attempt would find a sandbox without nodes.
        detached.down(folder)
        raise
    click.echo("\nNow the same sandbox with nodes; its data is kept.")
    detached.down(folder)
    return _up(folder, chosen, show_records=False)


def _up(folder: Path, chosen: dict[str, Any], *, show_records: bool) -> State:
    click.echo(f"Sandbox {folder.name!r} in {folder}")
    state = detached.up(folder, chosen, say=sandbox.say)
    if show_records:
        showkinds.show_records(Scene(folder, state))
    return state
