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
from sandbox import processes
from sandbox.options import Options
from sandbox.simulated import simulatedchildren as simulated
from sandbox.supervisor import Supervisor
from tests.chaos import buses, converging
from tests.chaos.callers import Callers
from tests.chaos.converging import Journal, settled, waiting
from tests.chaos.ending import Ending
from tests.chaos.envoys import Envoys
from tests.chaos.excuses import Excuses
from tests.chaos.havoc import Havoc, Plan
from tests.chaos.lacking import missing
from tests.chaos.nodes import Nodes
from tests.chaos.services import Services
from tests.chaos.witness import Witness
from tests.support.running import eventually
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.settings.bussettings import Access

logger = logging.getLogger(__name__)

LONG = os.environ.get("CHAOS") == "long"
SEED = int(os.environ.get("CHAOS_SEED", "1"))
SERVICES = 48 if LONG else 16
NODES = 4
PREFIX = "0/26" if LONG else "0/27"
PLAN = (
    Plan(seconds=420, kills=8, bus_restarts=3, api_restarts=1, dns_away=0, api_kills=3)
    if LONG
    else Plan(seconds=20, kills=1, bus_restarts=1, api_restarts=0, dns_away=0, api_kills=1)
)
OWNER_KILLS, ENVOY_KILLS = (8, 8) if LONG else (1, 1)
PATIENCE = (180 if LONG else 120) * buses.PATIENCE
"""Seconds to converge after the last blow."""


@dataclass
class World:
    """A sandbox under load, and all who take part."""

    sandbox: Supervisor
    kube: Kube
    access: Access
    services: Services
    nodes: Nodes
    envoys: Envoys
    witness: Witness
    callers: Callers
    journal: Journal

    @property
    def excuses(self) -> Excuses:
        return Excuses(self.callers, self.envoys, self.nodes)

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
            await buses.wipe(self.sandbox)
            async with connected(self.access) as bus:
                await streams.ensure(bus, buses.SERVERS)

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


@pytest.mark.timeout((1500 if LONG else 420) * buses.PATIENCE)
async def test_addresses_stay_and_clients_are_served_whatever_dies(tmp_path: Path) -> None:
    async with _world(tmp_path) as world, connected(world.access) as bus:
        ending = Ending(world.sandbox, world.kube, bus, world.envoys, world.services)
        await _break_everything(world)
        questions = (ending.shown, ending.entries, ending.owners, ending.envoy, ending.serve, ending.routes)
        problems = await settled(PATIENCE, lambda: waiting(bus), *questions)
        await world.journal.save()
        logger.warning("connections: %s", world.excuses.counted())
        logger.warning("Envoy was down for %s s", world.envoys.down.seconds())
    problems += world.witness.problems + world.envoys.problems + world.journal.overlaps()
    problems += world.excuses.faults()
    assert not problems, "\n".join(problems)


async def _break_everything(world: World) -> None:
    more = [world.kill_owner] * OWNER_KILLS + [world.envoys.kill] * ENVOY_KILLS
    more += [world.lose_objects, world.lose_everything]
    havoc = Havoc(world.sandbox, PLAN, random.Random(SEED), world.calm, more)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.services.run(PLAN.seconds))
        group.create_task(world.nodes.run(PLAN.seconds))
        group.create_task(havoc.run())


@contextlib.asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[World]:
    if reason := missing():
        pytest.skip(reason)
    port = processes.free_port()
    options = Options(
        workers=2, watchers=2, patchers=2, simulated_nodes=NODES, nats_servers=buses.SERVERS,
        # Addresses of its own, as the port is; and so few that they have to be used again.
        ports={"nats-server": port}, addresses=(f"127.{port >> 8}.{port & 255}.{PREFIX}",),
    )  # fmt: skip
    async with (
        Supervisor.running(folder / "chaos", options) as sandbox,
        kube.from_file(Path(sandbox.environment()["KUBECONFIG"])) as api,
        connected(converging.access(sandbox)) as bus,
        asyncio.TaskGroup() as group,
    ):
        world = _made(sandbox, api)
        tasks = (world.envoys.run, world.witness.run, lambda: world.witness.run_book(bus), world.callers.run)
        began = [group.create_task(task()) for task in tasks]
        yield world
        for task in began:
            task.cancel()


def _made(sandbox: Supervisor, api: Kube) -> World:
    access = converging.access(sandbox)
    network = simulated.network(sandbox.state.ports["kube-controller-manager"])
    services, nodes = Services(api, SEED, SERVICES), Nodes(api, network, NODES, random.Random(SEED))
    witness = Witness(api)
    return World(
        sandbox, api, access, services, nodes, Envoys(sandbox.folder / "edge"), witness,
        Callers(services, witness, nodes.steady, random.Random(SEED)), Journal(access),
    )  # fmt: skip
