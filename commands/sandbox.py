"""`windowbox up`, `down`, `status`, `env`, `logs` and `kubeconfig`."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import Any

import click

from commands.formatting import aligned, uptime
from commands.options import download_option, name_option, output_option
from sandbox import detached
from sandbox import state as states
from sandbox.options import TOGETHER
from sandbox.programs import binaries
from sandbox.progress import ONCE, Progress
from sandbox.state import ChildState, State
from windowbox.errors import WindowboxError

# This module has quick commands like `down`. Modules that import servers, the
# bus or settings are imported by the functions that need them: that is half a second.

_COLOURS = {"ready": "green", "starting": "yellow", "waiting": "yellow", "crashed": "red", "stopped": "red"}


def _interval(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if text is None or text == "always" or re.fullmatch(r"(\d+(ms|s|m|h))+", text):
        return text
    raise click.BadParameter(f"{text!r} is not a duration: write 100ms, 10s, 2m or always", ctx, param)


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox up                        watch, work and patch in one process\n"
    "  windowbox up --separate             watcher, worker and patcher\n"
    "  windowbox up --workers 4            four processes that work\n"
    "  windowbox up --nodes 3              three real nodes (Linux, as root)\n"
    "  windowbox up --nats-servers 3       a bus of three servers\n"
    "  windowbox up --no-download          compile what is missing\n"
    "  windowbox up --simulated-nodes 100  many, without machines (anywhere)\n"
    "  windowbox up --port named=5300      a port that never changes\n"
    "  windowbox up --name other           another sandbox beside the first"
)
@name_option
@click.option("--separate", is_flag=True, help="One process for each role, instead of `windowbox run`.")
@click.option("--watchers", type=click.IntRange(0), help="Separate, and how many `windowbox watch`.")
@click.option("--workers", type=click.IntRange(0), help="Separate, and how many `windowbox work`.")
@click.option("--patchers", type=click.IntRange(0), help="Separate, and how many `windowbox patch`.")
@click.option(
    "--admits", type=click.IntRange(0), help="How many `windowbox admit`. [default: 1 if there are workers]"
)
@click.option(
    "--garden-admits", type=click.IntRange(0), help="How many `windowbox admit --garden`. [default: 0]"
)
@click.option(
    "--uis", type=click.IntRange(0, 1), help="Whether `windowbox ui` runs. [default: 1 if there are workers]"
)
@click.option(
    "--nats-servers", type=click.Choice([1, 3]),
    help="Servers of the bus; of three, one may fail. [default: 1]",
)  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(0), help="How many real nodes. [default: 2 where possible, else 0]"
)
@click.option("--simulated-nodes", type=click.IntRange(0, 254), help="How many nodes without machines.")
@click.option("--audit/--no-audit", default=None, help="Log every request to the API server.")
@click.option("--dns-key/--no-dns-key", default=None, help="Take only signed DNS updates. [default: yes]")
@click.option(
    "--sync-interval", metavar="TIME", callback=_interval,
    help="How often NATS syncs to disk, or `always`. [default: 2m]",
)  # fmt: skip
@download_option
@click.option("--port", "ports", multiple=True, metavar="PROCESS=PORT", help="A fixed port; repeatable.")
def up(name: str | None, ports: tuple[str, ...], download: bool, separate: bool, **given: Any) -> None:
    """Start the sandbox: NATS, a Kubernetes API, BIND and windowbox itself, on loopback only.

    One process, `runner-1`, watches, works and patches; --separate starts one for each role. Nodes add
    kubelets and Pods, in network namespaces that cannot reach other networks. Does nothing if the sandbox
    runs. Data is kept under .windowbox/NAME between runs, except the data of nodes.
    """
    chosen = {key: value for key, value in given.items() if value is not None}
    for text in ports:
        process, _, port = text.partition("=")
        if not process or not port.isdecimal() or not 0 < int(port) < 65536:
            hint = f"{text!r}: write PROCESS=PORT, for example named=5300"
            raise click.BadParameter(hint, param_hint="--port")
        chosen.setdefault("ports", {})[process] = int(port)
    folder = states.folder(name)
    before = states.read(folder)
    running = bool(before and before.running())
    chosen |= role_counts(chosen, separate=separate, running=running)
    if before and running and before.ready:
        detached.up(folder, chosen)
        click.echo(f"The sandbox {folder.name!r} is running already.{_what_next(name)}")
        return
    prepare(before, chosen, Progress(click.echo, introduction=ONCE), download=download)
    click.echo(f"Starting the sandbox {folder.name!r} in {folder}")
    began = time.monotonic()
    detached.up(folder, chosen, say=say)
    click.echo(click.style(f"Ready after {time.monotonic() - began:.1f} s.", fg="green") + _what_next(name))


@click.command(epilog="\b\nExamples:\n  windowbox down\n  windowbox down --wipe     also remove its data")
@name_option
@click.option("--wipe", is_flag=True, help="Also remove the data of the sandbox.")
def down(name: str | None, wipe: bool) -> None:
    """End what `up` started, and nothing else, even after a crash. Keep the data unless --wipe is given."""
    folder = states.folder(name)
    before = states.read(folder)
    if before and before.running():
        click.echo(f"Ending the sandbox {folder.name!r}")
    ended = detached.down(folder, wipe=wipe)
    click.echo(f"Ended: {', '.join(ended)}." if ended else f"The sandbox {folder.name!r} was not running.")


@click.command(epilog="\b\nExamples:\n  windowbox status\n  windowbox status -o json | jq .children")
@name_option
@output_option
@click.pass_context
def status(ctx: click.Context, name: str | None, output: str) -> None:
    """Show the processes of the sandbox with uptime and restarts, then the streams and pools of the bus.

    Ends with 1 if a process is not ready, and with 3 if the sandbox does not run.
    """
    from commands import busoptions, busstatus
    from sandbox import roles
    from windowbox.settings import settings

    folder = states.folder(name)
    state = detached.running(folder)
    bus: Any
    try:
        operator = settings.load(roles.settings_file(folder, "operator"))
        found = busstatus.bus_status(operator, busoptions.monitor_of(state))
        bus, lines = found.as_json(), list(busstatus.lines(found))
    except WindowboxError as error:
        # Show the processes even if the bus cannot be reached.
        bus, lines = {"error": str(error)}, [f"Bus: {error}"]
    if output == "json":
        click.echo(json.dumps({**state.model_dump(mode="json"), "bus": bus}, indent=2))
    else:
        click.echo(f"Sandbox {state.name!r}, supervisor {state.pid}, up {uptime(time.time() - state.since)}")
        width = max(len(name) for name in ("x" * 24, *state.children))
        click.echo(
            f"  {'PROCESS':<{width}} {'STATE':<9} {'PID':>7} {'UP':>8} {'RESTARTS':>8} {'PORT':>6}  LAST EXIT"
        )
        for name, child in state.children.items():
            condition = click.style(f"{child.condition:<9}", fg=_COLOURS[child.condition])
            up_for = uptime(time.time() - child.since) if child.pid and child.since else "-"
            click.echo(
                f"  {name:<{width}} {condition} {child.pid or '-':>7} {up_for:>8} {child.restarts:>8} "
                f"{child.port or '-':>6}  {child.last_exit or ''}"
            )
        click.echo("\n" + "\n".join(lines))
    ctx.exit(0 if state.ready else 1)


@click.command(epilog='\b\nExamples:\n  eval "$(windowbox env)"\n  kubectl get dnsrecords -A')
@name_option
@output_option
def env(name: str | None, output: str) -> None:
    """Print environment variables that lead kubectl, nats and windowbox to the sandbox."""
    from sandbox import stages

    folder = states.folder(name)
    variables = stages.variables(folder, detached.running(folder))
    if output == "json":
        click.echo(json.dumps(variables, indent=2))
    else:
        for key, value in variables.items():
            click.echo(f"export {key}={shlex.quote(value)}")
        if not shutil.which("kubectl"):
            click.echo(f'export PATH="$PATH":{shlex.quote(str(binaries.find("kubectl").parent))}')


@click.command(
    epilog="\b\nExamples:\n  windowbox logs                 list the logs\n"
    "  windowbox logs runner-1 -f     follow one"
)
@click.argument("process", required=False)
@name_option
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    help="Lines from the end of the log.",
)
@click.option("--follow", "-f", is_flag=True, help="Follow the log until interrupted.")
def logs(process: str | None, name: str | None, lines: int, follow: bool) -> None:
    """Show the log of PROCESS; without PROCESS, list the logs."""
    folder = states.folder(name)
    if process is None:
        if not (known := detached.logs(folder)):
            click.echo(
                f"The sandbox {folder.name!r} has no logs yet: start it with `windowbox up`.", err=True
            )
        for one in known:
            click.echo(one)
        return
    path = detached.log(folder, process)
    # tail exists everywhere, and handles following and interrupts.
    with contextlib.suppress(KeyboardInterrupt):
        subprocess.run(["tail", "-n", str(lines), *(["-F"] if follow else []), str(path)], check=False)


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox kubeconfig --secret shoot--demo--one | kubectl apply -f -\n"
    "  windowbox kubeconfig > provider.kubeconfig"
)
@name_option
@click.option("--secret", "namespace", metavar="NAMESPACE", help="Print it as Secret `cloudprovider`.")
def kubeconfig(name: str | None, namespace: str | None) -> None:
    """Print the kubeconfig of the provider cluster, in which machines run: here, this sandbox.

    Its user has the rights of the ClusterRole system:windowbox:provider and no others. The kubeconfig refers
    to no files, so that it fits into a Secret.
    """
    from sandbox import roles
    from sandbox.servers import kubeconfigs

    folder = states.folder(name)
    detached.running(folder)
    content = roles.provider_kubeconfig(folder)
    click.echo(kubeconfigs.secret(namespace, content) if namespace else content, nl=False)


def role_counts(chosen: Mapping[str, Any], *, separate: bool, running: bool) -> dict[str, int]:
    """Options for one process of all roles, or for separate processes if any option asks for them."""
    if separate or chosen.keys() & {"watchers", "workers", "patchers"}:
        return {"runners": 0}
    return {} if running else TOGETHER


def prepare(
    before: State | None, chosen: dict[str, Any], progress: Progress, *, download: bool
) -> None:  # fmt: skip
    """Complete `chosen` with default nodes, admits and the page, and install all programs that it needs."""
    from sandbox import prerequisites
    from sandbox.nodes import hostresources

    running = before and before.running()
    if not running:
        usual_count = 0 if chosen.get("workers") == 0 and not chosen.get("runners") else 1
        chosen.setdefault("admits", usual_count)
        chosen.setdefault("uis", usual_count)
    usual = "nodes" not in chosen and not running
    if usual:
        chosen["nodes"] = 0 if chosen.get("simulated_nodes") else hostresources.usual()
    nodes = bool(chosen.get("nodes")) and not hostresources.unsuited()
    more = prerequisites.programs(nodes=nodes, simulated=bool(chosen.get("simulated_nodes")))
    prerequisites.gather([*prerequisites.SERVERS, *more], progress, nodes=nodes, download=download)
    if usual and not chosen.get("simulated_nodes") and (reason := hostresources.impossible()):
        progress.say(f"Continuing without real nodes: they need {reason}")
        chosen["nodes"] = 0


def say(name: str, child: ChildState) -> None:
    """A line about a process that has become ready, or has crashed."""
    if child.condition != "ready":
        click.echo(f"  {click.style('✗', fg='red')} {name:<24} crashed ({child.last_exit}); trying again")
        return
    took = f"{child.took:.1f} s" if child.took is not None else ""
    port = f"{child.host}:{child.port}" if child.port else ""
    click.echo(f"  {click.style('✓', fg='green')} {name:<24} {took:>6}  {port}")


def _what_next(name: str | None) -> str:
    option = f" --name {name}" if name else ""
    commands = {
        f'eval "$(windowbox env{option})"': "connect kubectl, nats and dig of this shell",
        f"windowbox open{option}": "a link to the page that shows it at work",
        "kubectl get dnsrecords -A": "list the records",
        f"windowbox status{option}": "processes, streams and pools",
        f"windowbox down{option}": "end it; data is kept",
    }
    return f"\nWhat next:\n{aligned(commands)}"
