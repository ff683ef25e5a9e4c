"""`windowbox completion`."""

from __future__ import annotations

import click


@click.command(epilog='\b\nExample:\n  eval "$(windowbox completion bash)"   # in ~/.bashrc')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands and options of windowbox."""
    from click.shell_completion import get_completion_class

    from commands.cli import cli

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "windowbox", "_WINDOWBOX_COMPLETE").source())
