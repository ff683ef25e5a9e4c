"""`windowbox top`: the pools, live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from bus import streams
from bus.messages import Result, RunRecord
from bus.transport import consumers
from bus.transport.connection import Bus
from commands import busoptions, busstatus, formatting
from commands.busstatus import BusState
from commands.options import output_option
from windowbox.errors import WindowboxError

_WINDOW = 60.0
"""Seconds of the journal from which figures are computed."""


class Ended(NamedTuple):
    """The part of a run's record that figures need."""

    at: float
    pool: str
    failed: bool
    waited: float
    seconds: float


class Figures(NamedTuple):
    """Figures of a pool's runs in the last minute."""

    rate: float
    """Runs per second."""
    errors: int
    waited: float | None
    """Median seconds from wish to start."""
    seconds: float | None
    """Median seconds of a run."""


class Recent:
    """The runs of the last minute."""

    def __init__(self) -> None:
        self._ended: deque[Ended] = deque()
        self.complete = asyncio.Event()
        """Set once the records that exist at the start have been read."""

    async def follow(self, bus: Bus) -> None:
        """Follow the journal; never returns."""
        while True:
            self._ended.clear()
            since = datetime.now(UTC) - timedelta(seconds=_WINDOW)
            following = consumers.follow(bus, streams.JOURNAL, ["run.>"], since=since)
            try:
                async with contextlib.aclosing(following) as records:  # type: ignore[type-var]
                    async for stored in records:
                        if stored is None:
                            self.complete.set()
                            continue
                        run = RunRecord.model_validate_json(stored.data)
                        failed = run.outcome is Result.FAILED
                        at = int(stored.time) / 1e9
                        self._ended.append(Ended(at, run.pool, failed, run.waited, run.seconds))
            except WindowboxError:
                # Show the pools even if the journal cannot be read.
                self.complete.set()
                await asyncio.sleep(1)

    def figures(self, pool: str, now: float) -> Figures:
        while self._ended and self._ended[0].at < now - _WINDOW:
            self._ended.popleft()
        runs = [each for each in self._ended if each.pool == pool]
        waited = statistics.median(each.waited for each in runs) if runs else None
        seconds = statistics.median(each.seconds for each in runs) if runs else None
        return Figures(len(runs) / _WINDOW, sum(each.failed for each in runs), waited, seconds)


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox top                      until interrupted\n"
    "  windowbox top --once -o json | jq '.pools[] | {pool, waiting, rate}'\n" + busoptions.FINDING
)
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "--interval", type=click.FloatRange(0.5), default=1.0, show_default=True, help="Seconds between updates."
)
@output_option
@busoptions.settings_options
def top(once: bool, interval: float, output: str, file: Path | None, name: str | None) -> None:
    """Show the pools: items waiting and for how long, in flight, rates, errors, workers.

    Rates, errors and times cover the last minute. RE-GIVEN: items in flight that were delivered before, to a
    worker that did not finish them. UNROUTED: changes that have not been mapped to keys yet.
    """
    settings = busoptions.loaded(file, name)
    monitor = busoptions.monitor(file, name)
    live = None if once or output == "json" or not sys.stdout.isatty() else Live(auto_refresh=False)

    async def show() -> None:
        async with busoptions.connected(settings, "top") as bus:
            recent = Recent()
            following = asyncio.create_task(recent.follow(bus), name="journal")
            try:
                await recent.complete.wait()
                while True:
                    found = await busstatus.read(bus, monitor)
                    if output == "json":
                        now, figures = time.time(), found.as_json()
                        for pool in figures["pools"]:
                            pool.update(recent.figures(pool["pool"], now)._asdict())
                        at = datetime.fromtimestamp(now, UTC).isoformat()
                        click.echo(json.dumps({"at": at, **figures}))
                    elif live:
                        live.update(_picture(found, recent), refresh=True)
                    else:
                        Console(width=None if sys.stdout.isatty() else 120).print(_picture(found, recent))
                    if once:
                        return
                    await asyncio.sleep(interval)
            finally:
                following.cancel()
                await asyncio.wait([following])

    with contextlib.suppress(KeyboardInterrupt), live or contextlib.nullcontext():
        asyncio.run(show())


def _picture(found: BusState, recent: Recent) -> Group:
    now = time.time()
    pools = Table(box=None, header_style="bold", pad_edge=False)
    pools.add_column("POOL")
    for title in (
        "WORKERS", "WAITING", "OLDEST", "IN FLIGHT", "RUNS/S", "ERRORS/MIN", "WAIT p50", "RUN p50",
        "RE-GIVEN", "UNROUTED",
    ):  # fmt: skip
        pools.add_column(title, justify="right", no_wrap=True)
    for pool in found.pools:
        figures = recent.figures(pool.pool, now)
        pools.add_row(
            pool.pool,
            str(pool.workers) if pool.workers else "[red]none[/]",
            str(pool.waiting),
            f"{pool.oldest_seconds:.1f} s" if pool.waiting or pool.in_flight else "-",
            str(pool.in_flight),
            f"{figures.rate:.1f}",
            f"[red]{figures.errors}[/]" if figures.errors else "0",
            _milliseconds(figures.waited),
            _milliseconds(figures.seconds),
            str(pool.redelivered),
            str(pool.unrouted),
        )
    held = Table(box=None, header_style="bold", pad_edge=False)
    held.add_column("STREAM")
    held.add_column("MESSAGES", justify="right")
    held.add_column("SIZE", justify="right")
    for stream in found.streams:
        held.add_row(stream.name, f"{stream.messages:,}", formatting.size(stream.bytes))
    server = [busstatus.server_line(found.server).strip()] if found.server else []
    return Group(pools, "", held, "", *server, *formatting.edge_lines(found.edge))


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"
