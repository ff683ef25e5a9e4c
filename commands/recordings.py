"""`windowbox record` and `windowbox replay`."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import busoptions
from commands.sandbox import output_option

if TYPE_CHECKING:
    from bus.recordings import Header, Recording
    from windowbox.settings.settings import Settings

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(ctx: click.Context, param: click.Parameter, text: str) -> timedelta:
    if not re.fullmatch(r"(\d+[smhd])+", text):
        raise click.BadParameter(f"{text!r} is not a duration: write 90s, 15m, 1h30m or 1d", ctx, param)
    parts = re.findall(r"(\d+)([smhd])", text)
    return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox record --since 15m -o morning.wbx\n"
    "  windowbox replay morning.wbx              does today's code still do the same?\n" + busoptions.FINDING
)
@click.option(
    "--since",
    callback=_duration,
    default="1h",
    show_default=True,
    metavar="TIME",
    help="How far back: 15m, 1d.",
)
@click.option(
    "-o", "--output", "target", type=click.Path(path_type=Path, dir_okay=False), required=True,
    metavar="FILE", help="The file to write.",
)  # fmt: skip
@busoptions.settings_options
def record(since: timedelta, target: Path, file: Path | None, name: str | None) -> None:
    """Write runs to FILE, with the objects they read and the answers they got.

    The journal goes back a day at most. Secrets are not in it, so neither are they in the file. With the runs
    come the settings by which their workers decided, such as zones and networks.
    """
    from bus import recordings

    settings = busoptions.loaded(file, name)
    now = datetime.now(UTC)
    recording = asyncio.run(_recorded(settings, _header(settings, now - since, now)))
    recordings.write(target, recording)
    size = target.stat().st_size / 1024
    click.echo(
        f"{target}: {len(recording.runs)} runs, {len(recording.reviews)} decisions of webhooks, "
        f"{len(recording.objects)} object versions, {size:.0f} KiB"
    )


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox replay day.wbx                                  compare with today's code\n"
    "  windowbox replay day.wbx --onto nats://127.0.0.1:4222     at the pace of that day\n"
    "  windowbox replay day.wbx --onto nats://… --speed 0        as fast as it goes"
)
@click.argument("recording", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--onto", metavar="URL", help="Publish the recorded objects onto this bus, which is empty.")
@click.option(
    "--speed", type=click.FloatRange(0), default=1.0, show_default=True,
    help="With --onto: how many times faster than it was; 0 for no pauses.",
)  # fmt: skip
@output_option
@click.pass_context
def replay(ctx: click.Context, recording: Path, onto: str | None, speed: float, output: str) -> None:
    """Repeat the runs of a recording without cluster, bus or DNS server, and show differences.

    Every run meets the objects and the answers it met then. What it changes now (records in DNS, addresses
    of load balancers, metadata, status) is compared with what it changed then. Ends with 1 if any differs.
    """
    from bus import recordings

    read = recordings.read(recording)
    if onto:
        click.echo(asyncio.run(_published(read, onto, speed)))
        return
    ctx.exit(_compare(read, output))


def _compare(recording: Recording, output: str) -> int:
    from commands import differences
    from webhooks import journal as asking
    from workers import replay as playing

    logging.disable()  # what workers would log is about the day that was recorded
    try:
        result = asyncio.run(playing.replayed(recording))
        reviews = asking.replayed(recording.reviews)
    finally:
        logging.disable(logging.NOTSET)
    if output == "json":
        both = differences.as_json(result) | {"reviews": differences.reviews_as_json(reviews)}
        click.echo(json.dumps(both, indent=2))
    else:
        for difference in result.differences:
            for line in differences.described(difference):
                click.echo(click.style(line.text, fg=line.colour))
            click.echo()
        for differing in reviews.differences:
            for line in differences.described_review(differing):
                click.echo(click.style(line.text, fg=line.colour))
            click.echo()
        for sentence in (*differences.summary(result), *differences.review_summary(reviews)):
            click.echo(sentence)
    return 1 if result.differences or reviews.differences else 0


async def _recorded(settings: Settings, header: Header) -> Recording:
    from bus import recordings
    from workers import replay as playing

    async with busoptions.connected(settings, "record") as bus:
        return await recordings.recorded(bus, header, playing.POOLS)


async def _published(recording: Recording, url: str, speed: float) -> str:
    from bus import recordings
    from bus.transport.connection import connected
    from windowbox.settings.bussettings import Access

    async with connected(Access(url, name="windowbox replay"), patience=5) as bus:
        count = await recordings.publish(bus, recording, speed)
    return f"{count} object versions published onto {url}"


def _header(settings: Settings, since: datetime, until: datetime) -> Header:
    from importlib import metadata

    from bus.recordings import FORMAT, Header

    try:
        version = metadata.version("windowbox")
    except metadata.PackageNotFoundError:
        version = "0"
    return Header(recording=FORMAT, version=version, since=since, until=until, settings=settings.deciding)
