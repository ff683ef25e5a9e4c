"""`windowbox record` and `windowbox replay`."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

import click

from bus import recordings
from bus.recordings import FORMAT, Header, Recording
from bus.transport.connection import connected
from commands import busoptions
from commands.journal import differences
from commands.options import duration, output_option
from webhooks import journal as webhooks
from windowbox.settings.bussettings import Access
from workers import replay as workers


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox record --since 15m -o morning.wbx\n"
    "  windowbox replay morning.wbx              does today's code do the same?\n" + busoptions.FINDING
)
@click.option(
    "--since",
    callback=duration,
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

    The journal keeps one day. It contains no Secrets, so the file contains none. The file also holds the
    settings that decide what runs do, such as zones and networks.
    """
    settings, now = busoptions.loaded(file, name), datetime.now(UTC)
    try:
        version = metadata.version("windowbox")
    except metadata.PackageNotFoundError:
        version = "0"
    header = Header(
        recording=FORMAT, version=version, since=now - since, until=now, settings=settings.deciding
    )

    async def read() -> Recording:
        async with busoptions.connected(settings, "record") as bus:
            return await recordings.recorded(bus, header, workers.POOLS)

    recording = asyncio.run(read())
    recordings.write(target, recording)
    size = target.stat().st_size / 1024
    click.echo(
        f"{target}: {len(recording.runs)} runs, {len(recording.reviews)} decisions of webhooks, "
        f"{len(recording.objects)} object versions, {size:.0f} KiB"
    )


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox replay day.wbx                                  compare with today's code\n"
    "  windowbox replay day.wbx --onto nats://127.0.0.1:4222     at the recorded pace\n"
    "  windowbox replay day.wbx --onto nats://… --speed 0        as fast as possible"
)
@click.argument("recording", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--onto", metavar="URL", help="Publish the recorded objects onto this empty bus.")
@click.option(
    "--speed", type=click.FloatRange(0), default=1.0, show_default=True,
    help="With --onto: how many times faster than recorded; 0: without pauses.",
)  # fmt: skip
@output_option
@click.pass_context
def replay(ctx: click.Context, recording: Path, onto: str | None, speed: float, output: str) -> None:
    """Repeat the runs of a recording without cluster, bus or DNS server, and show differences.

    Each run gets the recorded objects and answers. Its changes (records in DNS, addresses of load balancers,
    metadata, status) are compared with the recorded ones. Ends with 1 if any differ.
    """
    read = recordings.read(recording)
    if onto:

        async def publish() -> int:
            async with connected(Access(onto, name="windowbox replay"), patience=5) as bus:
                return await recordings.publish(bus, read, speed)

        click.echo(f"{asyncio.run(publish())} object versions published onto {onto}")
        return
    logging.disable()  # workers would log the day that was recorded
    try:
        result = asyncio.run(workers.replayed(read))
        reviews = webhooks.replayed(read.reviews)
    finally:
        logging.disable(logging.NOTSET)
    if output == "json":
        both = differences.as_json(result) | {"reviews": differences.reviews_as_json(reviews)}
        click.echo(json.dumps(both, indent=2))
    else:
        for lines in (
            *map(differences.described, result.differences),
            *map(differences.described_review, reviews.differences),
        ):
            for line in lines:
                click.echo(click.style(line.text, fg=line.colour))
            click.echo()
        for sentence in (*differences.summary(result), *differences.review_summary(reviews)):
            click.echo(sentence)
    ctx.exit(1 if result.differences or reviews.differences else 0)
