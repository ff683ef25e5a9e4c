"""Kinds that create objects: Infrastructures, Bastions and ControlPlanes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from sandbox.options import Options
from tools.bench import audit, shoots
from tools.bench.client import Observer, done, each
from tools.bench.report import MachineFacts, Phase, Report, Restart, Spread, phases_table, requests_table, say
from tools.bench.shoots import Shoots
from tools.bench.world import world
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    CONTROL_PLANES,
    INFRASTRUCTURES,
    IP_POOLS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
)

RATE, ISOLATED_MS, BASTION_MS = 40.0, 40.0, 300.0
"""Aims: Infrastructures each second, and latency of one Infrastructure and of one Bastion."""
_WARM_UP = 10
_BASTIONS = 20
_NODES = 2
_KEYS_EACH = 3.0
"""Seconds until three keys are generated, on a busy machine."""
_SECOND = 1.1
"""Statuses have times in seconds: reports of a phase have to be older than the requests of the next."""


@dataclass(frozen=True)
class Bastions:
    """How long Bastions took once their Pod and their load balancer were ready."""

    count: int
    nodes: str
    spread: Spread
    writes: float
    """API writes for each, objects included."""


@dataclass(frozen=True)
class ExtensionFigures(MachineFacts):
    """The result of `bench extensions`."""

    phases: Sequence[Phase]
    objects: float
    """Owned objects of each Infrastructure."""
    restart: Restart
    bastions: Bastions


@dataclass(frozen=True)
class ControlPlaneFigures(MachineFacts):
    """The result of `bench controlplane`."""

    phases: Sequence[Phase]
    restart: Restart


async def infrastructures(count: int, singles: int, options: Options, *, first: bool) -> Report:
    """Measure `count` Infrastructures at once; `singles` of them, and Bastions, one after the other."""
    async with (
        world("extensions", options, first=first) as here,
        Observer.watching(here.client, INFRASTRUCTURES, "") as observer,
    ):
        made, everything = Shoots.within(here), range(count + singles + _WARM_UP)
        say(f"{len(everything)} Shoots, each with a namespace, a Cluster and a Secret")
        await each(everything, made.prepare)
        await here.quiet()
        measured = partial(here.measured, named=shoots.named, observer=observer)
        await measured("warm up", everything[count + singles :], made.infrastructure)
        say(f"{singles} Infrastructures one after the other, {count} at once")
        alone = everything[count : count + singles]
        phases = [
            await measured("isolated", alone, made.infrastructure, one_by_one=True),
            await measured("create", range(count), made.infrastructure),
        ]
        say("the same again, unchanged")
        phases.append(await measured("again", range(count), partial(made.reconcile, INFRASTRUCTURES)))
        owned = 0
        for resource in (NAMESPACES, IP_POOLS, NETWORK_POLICIES):
            for item in (await here.client.request("GET", resource.path()))["items"]:
                home = item["metadata"].get("namespace") or item["metadata"]["name"]
                owned += home.startswith(("infra-shoot--", "shoot-machine-pods-"))
        restart, objects = await here.restarted(len(everything)), round(owned / len(everything), 2)
    bastions = await _bastions(min(singles, _BASTIONS))
    return Report(
        ExtensionFigures(phases, objects, restart, bastions),
        [
            *_parts("Infrastructures", phases, restart),
            Text(
                f"Aims: at least {RATE:.0f} Infrastructures created each second, one alone in at most "
                f"{ISOLATED_MS:.0f} ms, at most 2 API writes besides the {objects:g} objects of each\n"
                f"{bastions.count} Bastions on {bastions.nodes}, from Pod and load balancer being ready to "
                f"Succeeded: p50 {bastions.spread.p50} ms, p95 {bastions.spread.p95} ms "
                f"(aim: {BASTION_MS:.0f} ms); {bastions.writes} API writes each"
            ),
        ],
    )


async def _bastions(count: int) -> Bastions:
    """Create Bastions on simulated nodes, one after the other, each for a Shoot of its own."""

    def ready(pod: Object) -> bool:
        conditions = pod.status.get("conditions") or ()
        return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)

    async with (
        world("bastions", Options(simulated_nodes=_NODES)) as here,
        contextlib.AsyncExitStack() as stack,
    ):
        made = Shoots.within(here)
        say(f"{count} Shoots with Infrastructures")
        async with Observer.watching(here.client, INFRASTRUCTURES, "") as observer:
            await each(range(count), made.prepare)
            await each(range(count), made.infrastructure)
            await observer.all_of(map(shoots.named, range(count)))
        await here.quiet()
        say(f"{count} Bastions one after the other")
        here.audit.requests()
        bastions, *awaited = [
            await stack.enter_async_context(Observer.watching(here.client, resource, "", holds))
            for resource, holds in ((BASTIONS, done), (PODS, ready), (SERVICES, reachable))
        ]
        took = []
        for number in range(count):
            name = shoots.named(number)
            await made.bastion(number)
            succeeded = (await bastions.all_of([name]))[name]
            # From the last object that the Bastion waits for, as one client sees all of them.
            there = [(await one.all_of([f"bastion-{name}"]))[f"bastion-{name}"] for one in awaited]
            took.append(max(0.0, succeeded - max(there)))
        await here.quiet(calm=0.3)
        writes = audit.writes(audit.without_events(here.audit.requests()))
    return Bastions(count, f"{_NODES} simulated nodes", Spread.of(took), round(writes / count, 2))


async def controlplanes(count: int, singles: int) -> Report:
    """Measure `count` ControlPlanes at once, and `singles` one after the other; then a rotation."""
    # There are no API servers of Shoots that could join.
    os.environ["WINDOWBOX_JOIN__ENABLED"] = "false"
    async with (
        world("controlplanes", Options()) as here,
        Observer.watching(here.client, CONTROL_PLANES, "", seconds_each=_KEYS_EACH) as observer,
    ):
        made, everything = Shoots.within(here), range(count + singles)
        say(f"{len(everything)} Shoots, each with a namespace, a Cluster and a Secret")
        await each(everything, made.prepare)
        await here.quiet()
        measured = partial(here.measured, named=shoots.named, observer=observer)
        say(f"{singles} ControlPlanes one after the other, {count} at once")
        phases = [
            await measured("isolated", everything[count:], made.controlplane, one_by_one=True),
            await measured("create", range(count), made.controlplane),
        ]
        say("the same again, unchanged")
        await asyncio.sleep(_SECOND)
        phases.append(await measured("again", range(count), partial(made.reconcile, CONTROL_PLANES)))
        say("a rotation of their authorities")
        await asyncio.sleep(_SECOND)
        phases.append(await measured("rotate", range(count), made.rotation))
        restart = await here.restarted(len(everything))
    return Report(ControlPlaneFigures(phases, restart), _parts("ControlPlanes", phases, restart))


def _parts(title: str, phases: Sequence[Phase], restart: Restart) -> list[RenderableType]:
    return [phases_table(title, phases), requests_table(phases), Text(f"{restart} (aim: 0)")]


def reachable(service: Object) -> bool:
    """Whether the status of a Service shows an address."""
    return bool((service.status.get("loadBalancer") or {}).get("ingress"))
