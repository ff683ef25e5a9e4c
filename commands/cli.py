"""The command line. Each command is a module, imported on demand."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import click

from windowbox.errors import Missing, Unreachable, WindowboxError

_EPILOG = """\b
Exit codes:
  0  success
  1  a check failed, or the request was refused
  2  the command line is wrong
  3  a server, program or file that is needed is missing: not running, not installed, not reachable
"""


@dataclass(frozen=True)
class Entry:
    """The place of a command, `module:function`, and its line in the help."""

    place: str
    help: str


COMMANDS: dict[str, dict[str, Entry]] = {
    "Sandbox: all servers on this machine": {
        "up": Entry("commands.sandbox:up", "Start the sandbox; does nothing if it runs."),
        "down": Entry("commands.sandbox:down", "End what `up` started, and nothing else."),
        "status": Entry("commands.sandbox:status", "State of processes, streams and pools."),
        "env": Entry("commands.sandbox:env", "Environment variables for kubectl, nats and dig."),
        "kubeconfig": Entry("commands.sandbox:kubeconfig", "A kubeconfig, or a Secret with it, for Shoots."),
        "open": Entry("ui.command:open_page", "A link to the sandbox's page, which shows it at work."),
        "logs": Entry("commands.sandbox:logs", "Show the log of a process of the sandbox."),
        "shoot": Entry("commands.shoots:shoot", "Clusters with machines of the sandbox."),
        "machine": Entry("commands.shoots:machine", "Console logs of the machines of Shoots."),
        "doctor": Entry("commands.doctor:doctor", "Check this machine, the sandbox and servers."),
        "demo": Entry("commands.demo.demo:demo", "Show records, load balancers, Bastions and a Shoot."),
    },
    "Processes: what a deployment runs": {
        "run": Entry("commands.processes:run", "Watch, work and patch in one process, for a laptop."),
        "watch": Entry("commands.processes:watch", "Mirror clusters to the bus."),
        "work": Entry("commands.processes:work", "Take items off the bus and reconcile objects."),
        "edge": Entry("commands.processes:edge", "Run Envoy for load balancers."),
        "launch": Entry(
            "commands.launching:launch", "Run Envoys that outlive their edge, in a Pod of their own."
        ),
        "patch": Entry("commands.processes:patch", "Write status back to the clusters."),
        "admit": Entry("commands.processes:admit", "Answer API servers: webhooks and admission."),
        "ui": Entry("ui.command:ui", "Serve a page that shows the cloud at work."),
        "grant": Entry("commands.processes:grant", "Grant the roles rights on Secrets of namespaces."),
        "setup-bus": Entry("commands.processes:setup_bus", "Create or update the streams of the bus."),
        "make-secrets": Entry(
            "commands.installation:make_secrets", "Create the missing Secrets of an installation."
        ),
        "verify": Entry("commands.installation:verify", "Create a record, resolve it, delete it."),
        "clusters": Entry("commands.memberclusters:clusters", "List, add and remove served clusters."),
        "resolver": Entry("commands.resolver.resolver:resolver", "Let this host resolve names of the zone."),
    },
    "Observing: what happened, and why": {
        "trace": Entry("commands.journal.trace:trace", "The history of one object, step by step."),
        "lb": Entry("commands.balancers.lb:lb", "Load balancers: addresses, backends, health."),
        "top": Entry("commands.journal.top:top", "Pools, lag and rates, live."),
        "record": Entry("commands.journal.recordreplay:record", "Write runs and objects to a file."),
        "replay": Entry("commands.journal.recordreplay:replay", "Repeat recorded runs and compare."),
        "bench": Entry("commands.bench:bench", "Measure throughput and latency on this machine."),
    },
    "Clouds: Shoots of other types": {
        "validate": Entry("commands.clouds.validate:validate", "Check Shoots, CloudProfiles and Secrets."),
        "cloud": Entry("commands.clouds.cloud:cloud", "Emulated clouds: their objects, and faults."),
        "plan": Entry("commands.clouds.plan:plan", "Show what an update of a Shoot does."),
    },
    "Gardener: the real one": {
        "gardener": Entry("commands.gardener:gardener", "A real Gardener in a sandbox of its own."),
    },
    "Shell": {"completion": Entry("commands.cli:completion", "Completion for bash, zsh or fish.")},
}


class LazyGroup(click.Group):
    """Commands by name; their modules are imported only to run them or to show their own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = next((s[cmd_name] for s in COMMANDS.values() if cmd_name in s), None)
        if entry is None:
            return None
        module, _, function = entry.place.partition(":")
        try:
            command = getattr(importlib.import_module(module), function)
        except ModuleNotFoundError as error:
            # If another module is missing, one that the command imports, that is a bug.
            if error.name != module:
                raise
            raise click.ClickException(f"`windowbox {cmd_name}` is not part of this installation") from error
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in section.items()], col_max=12)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0], known, 1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (Missing, Unreachable) as error:
            raise Absent(str(error)) from error
        except WindowboxError as error:
            raise click.ClickException(str(error)) from error


class Absent(click.ClickException):
    """A server, program or file that a command needs is missing."""

    exit_code = 3


@click.group(cls=LazyGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="windowbox")
def cli() -> None:
    """A cloud that fits on one machine, for Kubernetes platforms like Gardener.

    \b
    Begin with:
      windowbox demo       see it work
      windowbox up         a sandbox to play in
      windowbox doctor     if something does not work
    """


def main() -> None:
    cli(prog_name="windowbox")


@click.command(epilog='\b\nExample:\n  eval "$(windowbox completion bash)"   # in ~/.bashrc')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script for SHELL that completes commands and options of windowbox."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "windowbox", "_WINDOWBOX_COMPLETE").source())
