"""Kinds that make objects, from the API to their owned objects: latency and cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from sandbox.options import Options
from sandbox.servers import kubeconfigs
from tools.bench import extensions_bastions, restarts, shoots
from tools.bench.client import Observer
from tools.bench.extensions_figures import ExtensionFigures
from tools.bench.shoots import Shoots
from tools.bench.world import World, world
from windowbox.models.refs import INFRASTRUCTURES

Say = Callable[[str], None]

_WARM_UP = 10
_BASTIONS = 20


async def run(
    count: int, singles: int, options: Options, say: Say, *, first: bool = False
) -> ExtensionFigures:
    """Measure with `count` Infrastructures at once, and `singles` and Bastions one after the other."""
    say("starting a sandbox")
    async with (
        world("extensions", options, first=first) as here,
        Observer.watching(here.client, INFRASTRUCTURES, "") as observer,
    ):
        figures = await _infrastructures(here, observer, count, singles, say)
    say("starting a sandbox with simulated nodes")
    return dataclasses.replace(figures, bastions=await extensions_bastions.run(min(singles, _BASTIONS), say))


async def _infrastructures(
    here: World, observer: Observer, count: int, singles: int, say: Say
) -> ExtensionFigures:
    made = Shoots(here.client, kubeconfigs.provider(here.sandbox.folder))
    alone = range(count, count + singles)
    warm_up = range(count + singles, count + singles + _WARM_UP)
    everything = range(count + singles + _WARM_UP)
    say(f"{len(everything)} Shoots, each with a namespace, a Cluster and a Secret")
    await here.client.each(everything, made.prepare)
    await here.quiet()
    measured = partial(here.measured, named=shoots.named, observer=observer)
    await measured("warm up", warm_up, made.infrastructure)
    say(f"{singles} Infrastructures one after the other, {count} at once")
    isolated = await measured("isolated", alone, made.infrastructure, one_by_one=True)
    created = await measured("create", range(count), made.infrastructure)
    say("the same again, unchanged")
    again = await measured("again", range(count), made.again)
    objects = await made.objects() / len(everything)
    say("restart")
    restart = await restarts.measured(here, len(everything))
    return ExtensionFigures([isolated, created, again], round(objects, 2), restart)
