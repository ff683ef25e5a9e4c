"""`windowbox demo`: starts a sandbox, and shows one part of the demo after the other."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from commands import sandbox
from commands.demo import showbalancer, showkinds, showshoot
from commands.demo.opening import opening
from commands.demo.showshoot import Making
from commands.demo.stage import Scene
from commands.formatting import aligned
from commands.options import download_option, name_option
from commands.sandbox import role_counts
from sandbox import detached, prerequisites, processes, stages
from sandbox import state as states
from sandbox.forecast import reading, showing
from sandbox.nodes import hostresources
from sandbox.programs import obtain
from sandbox.progress import ONCE, Progress
from sandbox.shoots import creation, records
from sandbox.state import ChildState, State
from windowbox.errors import Missing

_CONTROLLERS = "kube-controller-manager"


@dataclass(frozen=True)
class Part:
    """A part of the demo."""

    name: showing.Name
    show: Callable[[Scene, Making], None]
    programs: tuple[str, ...] = ()
    """What it needs and the parts before it do not."""
    without_nodes: str = ""
    """What is not shown where there are no real nodes; empty if it is shown there, too."""


def _parts(*, nodes: bool) -> list[Part]:
    """All parts, in the order of what they need."""
    of_nodes = hostresources.PROGRAMS if nodes else stages.SIMULATED_PROGRAMS
    return [
        Part("records", lambda scene, _: showkinds.show_records(scene)),
        Part("webhook", lambda scene, _: showkinds.show_webhook(scene)),
        Part("balancer", _show_balancer, (_CONTROLLERS, *of_nodes), showbalancer.WITHOUT_NODES),
        Part("owners", lambda scene, _: showkinds.show_owners(scene), (_CONTROLLERS, *of_nodes)),
        Part("shoot", showshoot.show, showshoot.PROGRAMS, showshoot.WITHOUT_NODES),
    ]


@click.command(epilog="\b\nExample:\n  windowbox demo && windowbox down")
@name_option
@download_option
def demo(name: str | None, download: bool) -> None:
    """Start the sandbox, apply examples/*.yaml, and show each step with the time it took.

    \b
    1. DNS records.
    2. A kubelet's setting, which a webhook changes before it is stored.
    3. With real nodes (Linux, as root): a load balancer, while a node fails and ports change.
    4. An Infrastructure and a Bastion: deleted objects are recreated, deletion leaves nothing behind.
    5. With real nodes: a Shoot with two machines, which are replaced while clients are connected.

    Each part is shown as soon as its programs are there: missing ones are built once, in this order. The
    sandbox keeps running, and a second demo shows the same. Ctrl-C ends and removes what the demo has
    started; the next one goes on with the programs that are there.
    """
    folder = states.folder(name)
    with _ending_if_interrupted(folder):
        _show_all(folder, download)
    option = f" --name {name}" if name else ""
    state = states.read(folder)
    page = (
        f"a link to the page that shows it live, at http://127.0.0.1:{state.ports['page']}" if state else ""
    )
    hints = {
        f"windowbox open{option}": page,
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


@contextlib.contextmanager
def _ending_if_interrupted(folder: Path) -> Iterator[None]:
    """End the sandbox if the block has started it, and is interrupted or fails before all programs are there.

    Data is kept only of a sandbox that was there before.
    """
    new, before = not folder.exists(), states.read(folder)
    running = bool(before and before.running())
    try:
        with processes.unwinding():
            yield
    except BaseException as error:
        state, interrupted = states.read(folder), not isinstance(error, Exception)
        incomplete = state and any(child.lacks_program() for child in state.children.values())
        # After an error, a complete sandbox is left for `windowbox doctor`.
        if not running and (interrupted or incomplete):
            click.echo("\nEnding the sandbox. The next demo goes on with the programs that are there.")
            detached.down(folder, wipe=new and interrupted)
        raise


def _show_all(folder: Path, download: bool) -> None:
    """Say what can be shown here; start the sandbox; show each part once its programs are there."""
    facts, before = reading.read(folder, download=download), states.read(folder)
    for line in opening(facts):
        click.echo(line)
    if reason := showing.impossible(facts):
        raise Missing(reason)
    running = before if before and before.running() else None
    nodes = bool(running.options.nodes) if running else not showing.without_nodes(facts)
    progress, first = Progress(click.echo, introduction=ONCE), _first(folder, nodes=nodes)
    wanted = dict.fromkeys([*first, *_programs(_parts(nodes=nodes)), *prerequisites.TOOLS])
    installing = nodes and not running
    # Pages that did not answer a moment ago are not asked again.
    download = bool(facts.downloaded)
    with prerequisites.obtaining(wanted, progress, nodes=installing, download=download) as wait:
        wait(first)
        # What was to be installed for nodes may be missing.
        nodes = nodes and not hostresources.impossible(folder)
        parts = _parts(nodes=nodes)
        lacking = {program.name for program in obtain.lacking(_programs(parts))}
        if lacking:
            click.echo("What is ready is shown at once, while the other programs are made.")
        click.echo(f"Sandbox {folder.name!r} in {folder}")
        said: set[str] = set()
        state = _up(folder, {} if running else _chosen(nodes, lacking), said)
        omitted = {part.name: part.lacking for part in showing.parts(facts)}
        with_shoot = nodes and not omitted["shoot"]
        with showshoot.making(creation.detached(folder, state)) as shoot:
            for part in parts:
                if part.without_nodes and (reason := omitted[part.name] or _why_no_nodes(folder, nodes)):
                    left_out(part.without_nodes, reason)
                    continue
                if lacking.intersection(part.programs):
                    click.echo("")
                    wait(part.programs)
                    lacking.difference_update(part.programs)
                    # The sandbox itself has all it needs before the Shoot is shown.
                    state = state if part.name == "shoot" else _up(folder, {}, said)
                if with_shoot and (part.programs or not lacking) and not obtain.lacking(showshoot.PROGRAMS):
                    shoot.begin()
                part.show(Scene(folder, state), shoot)
        wait(prerequisites.TOOLS)


def _programs(parts: list[Part]) -> list[str]:
    return [name for part in parts for name in part.programs]


def _first(folder: Path, *, nodes: bool) -> list[str]:
    """The programs without which a sandbox cannot start."""
    first = [name for name in prerequisites.SERVERS if name != _CONTROLLERS]
    if records.names(folder):  # Shoots of a former run start with the sandbox
        first += _programs(_parts(nodes=nodes))
    return first


def _show_balancer(scene: Scene, shoot: Making) -> None:
    showbalancer.show(scene, before_cut=shoot.wait_for_image)
    shoot.boot()


def _chosen(nodes: bool, lacking: set[str]) -> dict[str, Any]:
    """The options of a new sandbox, which waits for programs that it lacks."""
    kind = {"nodes": hostresources.usual()} if nodes else {"simulated_nodes": 2}
    roles = role_counts({}, separate=False, running=False)
    return {**kind, **roles, "admits": 1, "uis": 1, "awaited": tuple(sorted(lacking))}


def _up(folder: Path, chosen: dict[str, Any], said: set[str]) -> State:
    """Start the sandbox, or wait for more of it; say once of each process that it is ready."""

    def say(name: str, child: ChildState) -> None:
        if name not in said:
            sandbox.say(name, child)
        if child.condition == "ready":
            said.add(name)

    return detached.up(folder, chosen, say=say)


def _why_no_nodes(folder: Path, nodes: bool) -> str:
    """Why the sandbox has no real nodes; empty if it has."""
    if nodes:
        return ""
    if reason := hostresources.impossible(folder):
        return f"real nodes need {reason}"
    down = states.command("down", folder)
    return f"this sandbox was started without real nodes: `{down}`, then repeat the demo"


def left_out(what: str, reason: str) -> None:
    """Say which part is not shown, and why."""
    click.echo(f"\nLeft out: {what}, because {reason}")
