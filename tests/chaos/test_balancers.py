"""Everything goes wrong while Services and nodes come and go, and clients hardly notice.

`make test` runs the short version, `make chaos` the long one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.transport.connection import connected
from sandbox.simulated import simulatedchildren as simulated
from tests.chaos import havoc
from tests.chaos.arena import LONG, Arena, arena
from tests.chaos.breaking import Nodes
from tests.chaos.callers import Callers, Excuses
from tests.chaos.converging import settled, waiting
from tests.chaos.edge_ending import Ending
from tests.chaos.havoc import Havoc, Plan
from tests.chaos.services import Services
from tests.support.running import eventually
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

SEED = int(os.environ.get("CHAOS_SEED", "1"))
SERVICES = 48 if LONG else 16
NODES = 4
PLAN = (
    Plan(seconds=420, kills=8, bus_restarts=3, api_restarts=1, dns_away=0, api_kills=3)
    if LONG
    else Plan(seconds=20, kills=1, bus_restarts=1, api_restarts=0, dns_away=0, api_kills=1)
)
OWNER_KILLS, ENVOY_KILLS = (8, 8) if LONG else (1, 1)
PATIENCE = (180 if LONG else 120) * havoc.PATIENCE
"""Seconds to converge after the last blow."""


@dataclass
class World(Arena):
    """With all who take part."""

    services: Services
    nodes: Nodes
    callers: Callers

    async def kill_owner(self) -> None:
        """Kill -9 the worker that owns the edge; any worker, if none does at the moment."""
        name = await self._owner() or "worker-1"
        logger.warning("havoc: kill -9 %s, the owner of the edge", name)
        await self.sandbox.kill(name)

    async def lose_objects(self) -> None:
        """All objects vanish from the bus; the edge has a new owner before anybody brings them back."""
        await self.calm()
        logger.warning("havoc: the bus loses all objects, and the edge its owner")
        async with self._unwatched(), connected(self.access) as bus:
            await bus.purge(streams.OBJECTS, ">")
            await self.kill_owner()

    async def lose_everything(self) -> None:
        """The same, and the bus does not even know who is served."""
        await self.calm()
        logger.warning("havoc: the bus forgets everything, and the edge loses its owner")
        async with self._unwatched():
            await self.kill_owner()
            await havoc.wipe(self.sandbox)
            async with connected(self.access) as bus:
                await streams.ensure(bus, havoc.SERVERS)

    @contextlib.asynccontextmanager
    async def _unwatched(self) -> AsyncIterator[None]:
        """No watcher is there until after the edge has an owner again."""
        watchers = [name for name in self.sandbox.names if name.startswith("watcher")]
        for name in watchers:
            await self.sandbox.stop(name)
        yield
        await eventually(self._owner)
        await asyncio.sleep(2)  # longer than the owner needs to look at all there is
        for name in watchers:
            await self.sandbox.start(name)

    async def calm(self) -> None:
        """Wait until all is as usual, and keep the journal. It is then that forgetting does most harm."""
        await self.sandbox.wait_ready()
        await eventually(self._owner)
        await eventually(self._some_serve)
        await self.journal.save()

    async def _some_serve(self) -> bool:
        return len(self.witness.shown) > SERVICES / 2

    async def _owner(self) -> str | None:
        with contextlib.suppress(WindowboxError):
            async with connected(self.access, patience=2) as bus:
                lease = await bus.last(f"KV_{streams.LEASES}", subjects.entry(streams.LEASES, "edge"))
            pid = lease.data.decode().rpartition("/")[2] if lease else ""
            return next((n for n, c in self.sandbox.state.children.items() if str(c.pid) == pid), None)
        return None


@pytest.mark.long  # host/traffic and servers/envoy break each part alone
@pytest.mark.timeout((1500 if LONG else 420) * havoc.PATIENCE)
async def test_addresses_stay_and_clients_are_served_whatever_dies(tmp_path: Path) -> None:
    # So few addresses that they have to be used again.
    async with arena(tmp_path, prefix="0/26" if LONG else "0/27", simulated_nodes=NODES) as base:
        network = simulated.network(base.sandbox.state.ports["kube-controller-manager"])
        services, nodes = (
            Services(base.kube, SEED, SERVICES),
            Nodes(base.kube, network, NODES, random.Random(SEED)),
        )
        callers = Callers(services, base.witness, nodes.steady, random.Random(SEED))
        world = World(**vars(base), services=services, nodes=nodes, callers=callers)
        ending = Ending(world.sandbox, world.kube, world.bus, world.envoys, services)
        excuses = Excuses(callers, world.envoys, nodes)
        calling = asyncio.create_task(callers.run())
        await _break_everything(world)
        questions = (ending.shown, ending.entries, ending.owners, ending.envoy, ending.serve, ending.routes)
        problems = await settled(PATIENCE, lambda: waiting(world.bus), *questions)
        assert not calling.done(), calling.result()
        calling.cancel()
        await world.journal.save()
        logger.warning("connections: %s", excuses.counted())
        logger.warning("Envoy was down for %s s", world.envoys.down.seconds())
    problems += world.problems + excuses.faults()
    assert not problems, "\n".join(problems)


async def _break_everything(world: World) -> None:
    more = [world.kill_owner] * OWNER_KILLS + [world.envoys.kill] * ENVOY_KILLS
    more += [world.lose_objects, world.lose_everything]
    breaking = Havoc(world.sandbox, PLAN, random.Random(SEED), world.calm, more)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.services.run(PLAN.seconds))
        group.create_task(world.nodes.run(PLAN.seconds))
        group.create_task(breaking.run())
