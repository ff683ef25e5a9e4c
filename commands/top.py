"""`windowbox top`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bus.messages import Result
from commands import busoptions
from commands.sandbox import output_option

if TYPE_CHECKING:
    from rich.console import Group

    from bus.transport.connection import Bus
    from commands.busstatus import BusState
    from windowbox.settings.settings import Settings

_WINDOW = 60.0
"""Seconds of the journal that figures are made from."""


class Ended(NamedTuple):
    """A run, as far as figures need it."""

    at: float
    pool: str
    bad: bool
    waited: float
    seconds: float


class Figures(NamedTuple):
    """What the last minute's runs of a pool make."""

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
        """Set once what was there at the start has been read."""

    async def follow(self, bus: Bus) -> None:
        """Follow the journal; never returns."""
        from windowbox.errors import WindowboxError

        while True:
            try:
                async with contextlib.aclosing(self._journal(bus)) as ended:
                    async for each in ended:
                        self._ended.append(each)
            except WindowboxError:
                self.complete.set()
                await asyncio.sleep(1)

    def figures(self, pool: str, now: float) -> Figures:
        while self._ended and self._ended[0].at < now - _WINDOW:
            self._ended.popleft()
        runs = [each for each in self._ended if each.pool == pool]
        waited = statistics.median(each.waited for each in runs) if runs else None
        seconds = statistics.median(each.seconds for each in runs) if runs else None
        return Figures(len(runs) / _WINDOW, sum(each.bad for each in runs), waited, seconds)

    async def _journal(self, bus: Bus) -> AsyncGenerator[Ended, None]:
        from bus import streams
        from bus.messages import RunRecord
        from bus.transport import consumers

        self._ended.clear()
        since = datetime.now(UTC) - timedelta(seconds=_WINDOW)
        async for stored in consumers.follow(bus, streams.JOURNAL, ["run.>"], since=since):
            if stored is None:
                self.complete.set()
                continue
            run = RunRecord.model_validate_json(stored.data)
            yield Ended(
                int(stored.time) / 1e9, run.pool, run.outcome is Result.FAILED, run.waited, run.seconds
            )


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox top                      until interrupted\n"
    "  windowbox top --once -o json | jq '.pools[] | {pool, waiting, rate}'\n" + busoptions.FINDING
)
@click.option("--once", is_flag=True, help="Print once, and end.")
@click.option(
    "--interval", type=click.FloatRange(0.5), default=1.0, show_default=True, help="Seconds between updates."
)
@output_option
@busoptions.settings_options
def top(once: bool, interval: float, output: str, file: Path | None, name: str | None) -> None:
    """Show the pools: items waiting and for how long, in flight, rates, errors, workers.

    Rates, errors and times are those of the last minute's runs. RE-GIVEN: items in flight that were
    delivered before and not finished. UNROUTED: changes that have not been mapped to keys yet.
    """
    settings = busoptions.loaded(file, name)
    monitor = busoptions.monitor(file, name)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_show(settings, monitor, once, interval, output))


async def _show(settings: Settings, monitor: str | None, once: bool, interval: float, output: str) -> None:
    looks = _looks(settings, monitor, interval)
    async with contextlib.aclosing(looks):
        if once or output == "json" or not sys.stdout.isatty():
            async for found, recent in looks:
                _print(found, recent, output)
                if once:
                    return
        await _live(looks)


async def _live(looks: AsyncGenerator[tuple[BusState, Recent], None]) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        async for found, recent in looks:
            live.update(_picture(found, recent), refresh=True)


async def _looks(
    settings: Settings, monitor: str | None, interval: float
) -> AsyncGenerator[tuple[BusState, Recent], None]:
    from commands import busstatus

    async with busoptions.connected(settings, "top") as bus:
        recent = Recent()
        following = asyncio.create_task(recent.follow(bus), name="journal")
        try:
            await recent.complete.wait()
            while True:
                yield await busstatus.read(bus, monitor), recent
                await asyncio.sleep(interval)
        finally:
            following.cancel()
            await asyncio.wait([following])


def _print(found: BusState, recent: Recent, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(_as_json(found, recent)))
        return
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 120).print(_picture(found, recent))


def _as_json(found: BusState, recent: Recent) -> dict[str, Any]:
    now = time.time()
    figures = found.as_json()
    for pool in figures["pools"]:
        pool.update(recent.figures(pool["pool"], now)._asdict())
    return {"at": datetime.fromtimestamp(now, UTC).isoformat(), **figures}


def _picture(found: BusState, recent: Recent) -> Group:
    from rich.console import Group
    from rich.table import Table

    from commands import busstatus, units
    from commands.edges import edge_lines

    pools = Table(box=None, header_style="bold", pad_edge=False)
    pools.add_column("POOL")
    for title in (
        "WORKERS", "WAITING", "OLDEST", "IN FLIGHT", "RUNS/S", "ERRORS/MIN", "WAIT p50", "RUN p50",
        "RE-GIVEN", "UNROUTED",
    ):  # fmt: skip
        pools.add_column(title, justify="right", no_wrap=True)
    for row in _rows(found, recent):
        pools.add_row(*row)
    held = Table(box=None, header_style="bold", pad_edge=False)
    for title, side in (("STREAM", "left"), ("MESSAGES", "right"), ("SIZE", "right")):
        held.add_column(title, justify=side)  # type: ignore[arg-type]
    for stream in found.streams:
        held.add_row(stream.name, f"{stream.messages:,}", units.size(stream.bytes))
    server = [busstatus.server_line(found.server).strip()] if found.server else []
    return Group(pools, "", held, "", *server, *edge_lines(found.edge))


def _rows(found: BusState, recent: Recent) -> Iterator[list[str]]:
    now = time.time()
    for pool in found.pools:
        figures = recent.figures(pool.pool, now)
        busy = pool.waiting or pool.in_flight
        yield [
            pool.pool,
            str(pool.workers) if pool.workers else "[red]none[/]",
            str(pool.waiting),
            f"{pool.oldest_seconds:.1f} s" if busy else "-",
            str(pool.in_flight),
            f"{figures.rate:.1f}",
            f"[red]{figures.errors}[/]" if figures.errors else "0",
            _milliseconds(figures.waited),
            _milliseconds(figures.seconds),
            str(pool.redelivered),
            str(pool.unrouted),
        ]


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"
