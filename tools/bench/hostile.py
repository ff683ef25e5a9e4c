"""Hostile objects against a whole sandbox, and what well-behaved neighbours notice of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

import aiohttp

from sandbox.options import Options
from sandbox.servers import kubeconfigs
from sandbox.supervisor import Supervisor
from tools.bench import hostile_objects, hostile_tenants
from tools.bench.client import Client
from tools.bench.hostile_objects import Hostile
from tools.bench.neighbours import Latency, neighbours
from tools.bench.world import world
from windowbox.errors import Refused
from windowbox.models.extensions import OPERATION
from windowbox.models.refs import CLUSTERS, INGRESSES, SERVICES

_WRITERS = 4
_SECONDS_EACH = 0.2
"""Between the creations of two objects: API server and etcd have to keep up with objects of 1.3 MB."""
_REFUSALS = (Refused, aiohttp.ClientConnectionError)
"""The API server hangs up on whoever sends it too large a body."""
_FORCED = {"confirmation.gardener.cloud/force-deletion": "true"}


@dataclass
class Attack:
    """Hostile tenants in a sandbox, and the objects that the API server let through."""

    client: Client
    namespaces: list[str]
    made: list[Hostile] = field(default_factory=list)
    refused: int = 0

    async def create(self, objects: Iterable[Hostile], pause: float = 0.0) -> None:
        """Create the objects, with a pause after each."""
        left = iter(objects)

        async def write() -> None:
            for one in left:
                await self._create(one)
                await asyncio.sleep(pause * _WRITERS)  # the pace of the load

        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(write())

    async def _create(self, one: Hostile) -> None:
        try:
            path = one.row.resource.path(one.namespace)
            await self.client.request("POST", path, hostile_objects.encoded(one.body))
        except _REFUSALS:
            self.refused += 1
            return
        self.made.append(one)
        if one.status is None:
            return
        with contextlib.suppress(*_REFUSALS):
            status = hostile_objects.encoded({"status": one.status})
            await self.client.request("PATCH", f"{one.path}/status", status)
            if one.row.resource not in (SERVICES, INGRESSES):
                asked = {"metadata": {"annotations": {OPERATION: "reconcile"}}}
                await self.client.request("PATCH", one.path, asked)

    async def delete(self) -> None:
        """Delete all objects, where need be by force."""
        annotated = {"spec": {"shoot": {"metadata": {"annotations": _FORCED}}}}
        for name in self.namespaces:
            await self.client.request("DELETE", CLUSTERS.path("", name), accepted=(200, 404))
            await hostile_tenants.good_cluster(self.client, name)
            await self.client.request("PATCH", CLUSTERS.path("", name), annotated)
        for one in self.made:
            patch = {"metadata": {"annotations": {**_FORCED, OPERATION: "reconcile"}}}
            with contextlib.suppress(Refused):
                await self.client.request("PATCH", one.path, patch)
            await self.client.request("DELETE", one.path, accepted=(200, 202, 404))

    async def left(self) -> list[Hostile]:
        """The objects that are still there."""
        found = []
        for one in self.made:
            with contextlib.suppress(Refused):
                await self.client.request("GET", one.path)
                found.append(one)
        return found


@contextlib.asynccontextmanager
async def attack(sandbox: Supervisor, client: Client, tenants: int, seed: int) -> AsyncIterator[Attack]:
    """So many hostile tenants, some of whose provider clusters never answer."""
    async with hostile_tenants.silent_server() as silent:
        kubeconfig = kubeconfigs.provider(sandbox.folder)
        names = await hostile_tenants.prepare(client, tenants, kubeconfig, silent, seed)
        yield Attack(client, names)


async def run(count: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Latency]:
    """So many hostile objects, evenly spread over time; before, the same ones of types that nobody serves."""
    say("starting a sandbox with simulated nodes")
    async with world("hostile", Options(simulated_nodes=2)) as here, neighbours(here) as others:
        await here.quiet()
        say("neighbours alone")
        found = await others.measured("alone", asyncio.create_task(asyncio.sleep(0)), rounds)
        async with attack(here.sandbox, here.client, max(12, count // 10), seed) as attacking:
            for phase, served in (("beside objects nobody serves", False), ("beside hostile objects", True)):
                objects = hostile_objects.objects(count, attacking.namespaces, seed)
                thrown = objects if served else map(hostile_objects.ignored, objects)
                say(f"{count} objects: neighbours {phase}")
                creating = asyncio.create_task(attacking.create(thrown, _SECONDS_EACH))
                found += await others.measured(phase, creating)
                say(f"{len(attacking.made)} were let in by the API server; deleting them")
                await attacking.delete()
                attacking.made.clear()
                await here.quiet()
    return found
