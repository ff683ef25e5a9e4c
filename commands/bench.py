"""`windowbox bench`, which only a checkout of the repository has: wheels and images contain no benchmarks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

import windowbox

_COMMANDS = "tools.bench.commands"

bench: click.Command

# An installation in editable mode finds the packages of the wheel only.
sys.path.append(str(Path(windowbox.__file__).parents[1]))

try:
    # Not an import statement: what the wheel imports has to be in the wheel.
    bench = importlib.import_module(_COMMANDS).bench
except ModuleNotFoundError as error:
    if not f"{_COMMANDS}.".startswith(f"{error.name}."):
        raise

    @click.command("bench", context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1)
    def absent(arguments: tuple[str, ...]) -> None:
        """Measure how fast this machine is. Runs from a checkout of the repository."""
        raise click.ClickException(
            "windowbox bench runs from a checkout of the repository: clone it, and run `make bench` there"
        )

    bench = absent
