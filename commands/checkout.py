"""Commands that only a checkout of the repository has: wheels and images do not contain their modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

import windowbox

# An installation in editable mode finds the packages of the wheel only.
sys.path.append(str(Path(windowbox.__file__).parents[1]))


def command(name: str, module: str, help: str, remedy: str) -> click.Command:
    """The command `name` of `module`; in an installation one that says what to do instead."""
    try:
        # Not an import statement: what the wheel imports has to be in the wheel.
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
    else:
        assert isinstance(found, click.Command)
        return found

    @click.command(
        name, help=f"{help} Runs from a checkout of the repository.",
        context_settings={"ignore_unknown_options": True},
    )  # fmt: skip
    @click.argument("arguments", nargs=-1)
    def absent(arguments: tuple[str, ...]) -> None:
        raise click.ClickException(f"windowbox {name} runs from a checkout of the repository: {remedy}")

    return absent
