"""`windowbox trace`: the history of one object, from the bus."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bus.leases import presence
from commands import busoptions
from commands.journal import ownedobjects, stories, timeline
from commands.journal.stories import Story
from commands.journal.timeline import Moment
from commands.options import output_option
from windowbox import kinds
from windowbox.errors import Missing
from windowbox.models.refs import ObjectRef
from windowbox.settings.settings import Settings

_COLOURS = {"plain": "", "good": "green", "bad": "red", "late": "yellow"}


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox trace dns default/www\n"
    "  windowbox trace service shop/web\n"
    "  windowbox trace infra shoot--foo--bar/bar\n"
    "  windowbox trace dnsrecord shoot--foo--bar/api -o json | jq .story[-1]\n" + busoptions.FINDING
)
@click.argument("kind")
@click.argument("object", metavar="NAMESPACE/NAME")
@click.option("--cluster", default="runtime", show_default=True, help="In which cluster.")
@output_option
@busoptions.settings_options
def trace(kind: str, object: str, cluster: str, output: str, file: Path | None, name: str | None) -> None:
    """Show the history of one object on one timeline, the newest last.

    Its versions; its runs, with their reason, waiting time, duration, reads, calls and process; each status
    that was written; pending work, and why it waits; the objects created for it, each with the command that
    shows it.
    """
    ref = _ref(kind, object, cluster)
    settings = busoptions.loaded(file, name)
    story = asyncio.run(_read(settings, ref))
    if not story:
        raise Missing(
            f"the bus holds nothing of {ref}: it does not exist, is not watched, or is gone for over a day"
        )

    moments = timeline.moments(story.versions, story.runs, story.reviews)
    objects = ownedobjects.objects(story.runs)
    if output == "json":
        parts = {
            "object": ref._asdict(),
            "story": [moment.as_json() for moment in moments],
            "waiting": [moment.as_json() for moment in story.waiting],
            "made": [one.as_json(cluster) for one in objects],
        }
        click.echo(json.dumps(parts, indent=2))
    else:
        _print(ref, moments, story.waiting)
        if objects:
            click.echo("\n" + click.style("Created for it", bold=True))
            click.echo("\n".join(ownedobjects.lines(objects, cluster)))


def _ref(kind: str, object: str, cluster: str) -> ObjectRef:
    resource = kinds.named(kind)
    if resource is None:
        known = ", ".join(sorted(resource.kind.lower() for resource in kinds.RESOURCES.values()))
        raise click.UsageError(f"no kind {kind!r}; there are: {known}")
    namespace, _, name = object.rpartition("/")
    if not name or bool(namespace) != resource.namespaced:
        wanted = "NAMESPACE/NAME" if resource.namespaced else "NAME"
        raise click.UsageError(f"{object!r} names no {resource.kind}: write {wanted}")
    return ObjectRef(cluster, resource.id, namespace, name)


async def _read(settings: Settings, ref: ObjectRef) -> Story:
    async with busoptions.connected(settings, "trace") as bus:
        return await stories.read(bus, ref, await presence.processes(bus))


def _print(ref: ObjectRef, moments: Sequence[Moment], waiting: Sequence[Moment]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    day = ""
    for moment in [*moments, *waiting]:
        if (today := f"{moment.at.astimezone():%Y-%m-%d}") != day:
            grid.add_row(Text(today, "bold"), "", Text(str(ref), "bold") if not day else "")
            day = today
        style = _COLOURS[moment.tone]
        clock = "now" if moment.what == "waits" else f"{moment.at.astimezone():%H:%M:%S.%f}"[:-3]
        grid.add_row(clock, Text(moment.what, style), Text(moment.title, style))
        for detail in moment.details:
            grid.add_row("", "", Text(detail, "dim"))
    if not waiting:
        grid.add_row("now", "", "nothing is waiting")
    console.print(grid)
