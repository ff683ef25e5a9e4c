"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def name_option(function: _Function) -> _Function:
    """`--name`: which sandbox. The default is the value of WINDOWBOX_SANDBOX, or `default`."""
    return click.option(
        "--name", metavar="NAME", help="Which sandbox, if there are several. [default: default]"
    )(function)


def download_option(function: _Function) -> _Function:
    """`--no-download`: compile all missing programs, also those of which official binaries are published."""
    return click.option(
        "--download/--no-download", default=True,
        help="Whether official binaries of missing programs are used, not only compiled ones. [default: yes]",
    )(function)  # fmt: skip


def output_option(function: _Function) -> _Function:
    """`--output json`: for other programs."""
    return click.option(
        "--output", "-o", type=click.Choice(["text", "json"]), default="text",
        help="text for people, json for programs.",
    )(function)  # fmt: skip
