"""`windowbox bench`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

from windowbox.commands.sandbox import output_option

_T = TypeVar("_T")


@click.group()
def bench() -> None:
    """Measure how fast this machine is. Each measurement has a sandbox of its own, gone at the end."""


@bench.command()
@click.option(
    "-n", "count", type=click.IntRange(1), default=1000, show_default=True, help="How many records."
)
@click.option(
    "--idle", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds to measure idleness."
)
@output_option
def dnsrecords(count: int, idle: float, output: str) -> None:
    """Create, change and delete DNSRecords; restart over them; be idle."""
    from bench import dnsrecords, tables

    figures = _run(dnsrecords.run(count, idle, _say))
    if output == "json":
        _dump(figures)
    else:
        tables.show(*tables.dnsrecords(figures))


@bench.command()
@click.option("-n", "items", type=click.IntRange(1), default=20000, show_default=True, help="How many items.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="How many processes.")
@output_option
def bus(items: int, workers: int, output: str) -> None:
    """Items through the queue and worker runtime, with nothing to do for any of them."""
    from bench import queue, tables

    figures = _run(queue.run(items, workers, _say))
    if output == "json":
        _dump(figures)
    else:
        tables.show(tables.queue(figures))


def _run(measurement: Coroutine[Any, Any, _T]) -> _T:
    import uvloop

    return uvloop.run(measurement)


def _say(doing: str) -> None:
    click.echo(f"  {doing} …", err=True)


def _dump(figures: Any) -> None:
    click.echo(json.dumps(dataclasses.asdict(figures), indent=2))
