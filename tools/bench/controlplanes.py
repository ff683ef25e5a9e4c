"""ControlPlanes: many at once, the same again, a rotation of their authorities, a restart over them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from sandbox.options import Options
from sandbox.servers import kubeconfigs
from tools.bench import restarts, shoots
from tools.bench.client import Observer
from tools.bench.extensions_figures import phases_table, requests_table
from tools.bench.figures import Phase, Restart
from tools.bench.shoots import Shoots
from tools.bench.world import world
from windowbox.models.refs import CONTROL_PLANES

Say = Callable[[str], None]

_KEYS_EACH = 3.0
"""Seconds until three keys are generated, on a busy machine."""
_SECOND = 1.1
"""Reports tell seconds: those of the phase before must be older than what is requested next."""
_WITHOUT_MEMBERS = {"WINDOWBOX_JOIN__ENABLED": "false"}
"""There are no API servers of Shoots that could take part."""


@dataclass(frozen=True)
class ControlPlaneFigures:
    """What `bench controlplane` found."""

    phases: Sequence[Phase]
    restart: Restart
    load: tuple[float, float, float] = field(default_factory=os.getloadavg)
    """How busy the machine was, as it says itself."""
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)


async def run(count: int, singles: int, say: Say) -> ControlPlaneFigures:
    """Measure with `count` ControlPlanes at once, and `singles` one after the other."""
    os.environ |= _WITHOUT_MEMBERS
    say("starting a sandbox")
    async with (
        world("controlplanes", Options()) as here,
        Observer.watching(here.client, CONTROL_PLANES, "", seconds_each=_KEYS_EACH) as observer,
    ):
        made = Shoots(here.client, kubeconfigs.provider(here.sandbox.folder))
        everything, alone = range(count + singles), range(count, count + singles)
        say(f"{len(everything)} Shoots, each with a namespace, a Cluster and a Secret")
        await here.client.each(everything, made.prepare)
        await here.quiet()
        measured = partial(here.measured, named=shoots.named, observer=observer)
        say(f"{singles} ControlPlanes one after the other, {count} at once")
        phases = [
            await measured("isolated", alone, made.controlplane, one_by_one=True),
            await measured("create", range(count), made.controlplane),
        ]
        say("the same again, unchanged")
        await asyncio.sleep(_SECOND)
        phases.append(await measured("again", range(count), made.controlplane_again))
        say("their authorities are rotated")
        await asyncio.sleep(_SECOND)
        phases.append(await measured("rotate", range(count), made.rotation))
        say("restart")
        restart = await restarts.measured(here, len(everything))
    return ControlPlaneFigures(phases, restart)


def shown(figures: ControlPlaneFigures) -> list[RenderableType]:
    restart = figures.restart
    busy = ", ".join(f"{each:.1f}" for each in figures.load)
    return [
        phases_table("ControlPlanes", figures.phases),
        requests_table(figures.phases),
        Text(
            f"Restart with {restart.objects} unchanged objects: ready after {restart.ready} s, quiet after "
            f"{restart.quiet} s; {restart.writes} API writes (aim: 0)\n"
            f"This machine: {figures.cores} cores; load in the last 1, 5, 15 minutes: {busy}"
        ),
    ]
