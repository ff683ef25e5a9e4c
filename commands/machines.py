"""`windowbox machine`: what machines of the sandbox said on their consoles."""

from __future__ import annotations

import click

from commands.sandbox import name_option


@click.group(epilog="\b\nExample:\n  windowbox machine logs")
def machine() -> None:
    """Machines of Shoots in the sandbox: their console logs. Their objects: `kubectl get machines -A`."""


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
    from sandbox import state as states
    from sandbox.shoots import consoles

    folder = states.folder(name).absolute() / "machines"
    if machine_name is None:
        for one in consoles.machines(folder):
            click.echo(one.removeprefix("machine-"))
        return
    for line in consoles.lines(folder, machine_name):
        click.echo(line)
