"""Bastions on simulated nodes: latency after their Pod and load balancer are ready."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from sandbox.options import Options
from sandbox.servers import kubeconfigs
from tools.bench import audit, shoots
from tools.bench.client import Observer, done
from tools.bench.extensions_figures import Bastions
from tools.bench.figures import Spread
from tools.bench.shoots import Shoots
from tools.bench.world import World, world
from windowbox.models.objects import Object
from windowbox.models.refs import BASTIONS, INFRASTRUCTURES, PODS, SERVICES

_NODES = 2


async def run(count: int, say: Callable[[str], None]) -> Bastions:
    """Make so many, one after the other, each for a Shoot of its own."""
    async with world("bastions", Options(simulated_nodes=_NODES)) as here:
        made = Shoots(here.client, kubeconfigs.provider(here.sandbox.folder))
        say(f"{count} Shoots with Infrastructures")
        async with Observer.watching(here.client, INFRASTRUCTURES, "") as infrastructures:
            await here.client.each(range(count), made.prepare)
            infrastructures.expect()
            await infrastructures.all_of(
                await here.client.each(range(count), made.infrastructure, shoots.named)
            )
        await here.quiet()
        say(f"{count} Bastions one after the other")
        here.audit.requests()
        took = await _took(here, made, count)
        await here.quiet(calm=0.3)
        requests = audit.without_events(here.audit.requests())
    writes = round(audit.writes(requests) / count, 2)
    return Bastions(count, f"{_NODES} simulated nodes", Spread.of(took), writes)


async def _took(here: World, made: Shoots, count: int) -> list[float]:
    """Seconds from the last of what a Bastion waits for to its Succeeded, as one client sees both."""
    async with contextlib.AsyncExitStack() as stack:
        watched = [
            await stack.enter_async_context(Observer.watching(here.client, resource, "", holds))
            for resource, holds in ((BASTIONS, done), (PODS, ready), (SERVICES, reachable))
        ]
        bastions, *awaited = watched
        for observer in watched:
            observer.expect()
        took = []
        for number in range(count):
            name = shoots.named(number)
            await made.bastion(number)
            succeeded = (await bastions.all_of([name]))[name]
            there = [(await one.all_of([f"bastion-{name}"]))[f"bastion-{name}"] for one in awaited]
            took.append(max(0.0, succeeded - max(there)))
    return took


def ready(pod: Object) -> bool:
    conditions = pod.status.get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def reachable(service: Object) -> bool:
    return bool((service.status.get("loadBalancer") or {}).get("ingress"))
