"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

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


def duration(ctx: click.Context, param: click.Parameter, text: str | None) -> timedelta | None:
    """The value of an option: 90s, 15m, 1h30m."""
    if text is None:
        return None
    if not re.fullmatch(r"([0-9]{1,6}[smhd])+", text) or len(text) > 30:
        raise click.BadParameter(f"{text!r:.40} is not a duration: write 90s, 15m, 1h30m or 1d", ctx, param)
    parts = re.findall(r"(\d+)([smhd])", text)
    return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))
