"""`windowbox bench`, which only a checkout of the repository has: wheels and images contain no benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import windowbox

# An installation in editable mode finds the packages of the wheel only.
sys.path.append(str(Path(windowbox.__file__).parents[1]))

try:
    from tools.bench.commands import bench
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] not in ("bench", "tools"):
        raise

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1)
    def bench(arguments: tuple[str, ...]) -> None:
        """Measure how fast this machine is. Runs from a checkout of the repository."""
        raise click.ClickException(
            "windowbox bench runs from a checkout of the repository: clone it, and run `make bench` there"
        )


__all__ = ["bench"]
