"""Everything goes wrong while objects of all kinds come, change and go; in the end all is accounted for.

`make chaos CHAOS_KILLS=100 CHAOS_CHANGES=10000` kills each a hundred times during ten thousand changes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus.transport.connection import Bus, connected
from sandbox import processes, roles
from sandbox.options import Options
from sandbox.supervisor import Supervisor
from tests.chaos import accounts, buses, converging
from tests.chaos.accounts import Accounts
from tests.chaos.converging import Journal, settled
from tests.chaos.edge_ending import EdgeEnding
from tests.chaos.envoys import Envoys
from tests.chaos.hasty import Hasty
from tests.chaos.havoc import Havoc, Plan
from tests.chaos.lacking import missing
from tests.chaos.shoots import Shoots
from tests.chaos.shoots_ending import Ending
from tests.chaos.witness import Witness
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.refs import NAMESPACES

logger = logging.getLogger(__name__)

LONG = os.environ.get("CHAOS") == "long"
SEED = int(os.environ.get("CHAOS_SEED", "7"))
KILLS = int(os.environ.get("CHAOS_KILLS", "12" if LONG else "1"))
"""Of each process of ours, and of NATS, the API server, named and Envoy."""
CHANGES = int(os.environ.get("CHAOS_CHANGES", "1000" if LONG else "60"))
SHOOTS, CLIENTS = (24, 16) if LONG else (6, 4)
PLAN = Plan(
    seconds=20.0 * KILLS, kills=KILLS, bus_restarts=KILLS, api_restarts=1, dns_away=10 if LONG else 0,
    api_kills=KILLS, dns_kills=KILLS, wipes=1 + KILLS // 20,
)  # fmt: skip
PATIENCE = 900 if LONG else 120 * buses.PATIENCE
"""Seconds to converge after the last blow. What three kills in a row have met is quarantined for 600."""


@dataclass
class World:
    """A sandbox, and all who take part."""

    sandbox: Supervisor
    kube: Kube
    envoys: Envoys
    shoots: Shoots
    hasty: Hasty
    journal: Journal
    accounts: Accounts
    witness: Witness

    async def suffer(self) -> None:
        """Changes, and everything that goes wrong meanwhile."""
        more = [self.envoys.kill] * KILLS
        havoc = Havoc(self.sandbox, PLAN, random.Random(SEED), self.journal.save, more)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.shoots.run(PLAN.seconds))
                group.create_task(self.hasty.run(PLAN.seconds))
                group.create_task(havoc.run())
        finally:
            killed = havoc.killed | {"envoy": self.envoys.kills}
            logger.warning("%d hasty changes; killed: %s", self.hasty.changes, dict(killed))

    async def unsettled(self, bus: Bus) -> list[str]:
        """What is still not as it ought to be."""
        edge, accounts = EdgeEnding(self.sandbox, self.kube, bus, self.envoys), self.accounts
        questions = (
            lambda: _owed(bus), Ending(self.kube, self.shoots).converged, accounts.records,
            accounts.balancers, accounts.infrastructures, accounts.places, accounts.names,
            edge.entries, edge.owners, edge.envoy, edge.routes,
        )  # fmt: skip
        return await settled(PATIENCE, *questions)


@pytest.mark.timeout((1500 + 90 * KILLS if LONG else 360) * buses.PATIENCE)
async def test_all_converges_and_deleted_objects_leave_nothing(tmp_path: Path) -> None:
    async with _world(tmp_path) as world, connected(converging.access(world.sandbox)) as bus:
        await world.suffer()
        problems = await world.unsettled(bus)
        await world.journal.save()
    problems += world.envoys.problems + world.journal.overlaps() + world.witness.problems
    logger.warning("%d runs, %d problems", len(world.journal.runs), len(problems))
    assert not problems, "\n".join(problems)
    assert world.shoots.living
    assert world.shoots.dead


async def _owed(bus: Bus) -> list[str]:
    """What is to be done now. Those who waited for something look again later, though it has come."""
    return [what for what in await converging.waiting(bus) if not what.startswith("LATER")]


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[World]:
    if reason := missing():
        pytest.skip(reason)
    port = processes.free_port()
    options = Options(
        workers=2, watchers=2, patchers=2, simulated_nodes=2, nats_servers=buses.SERVERS,
        dns_ownership="chaos",
        # Addresses of its own, as the port is.
        ports={"nats-server": port}, addresses=(f"127.{port >> 8}.{port & 255}.0/25",),
    )  # fmt: skip
    async with (
        Supervisor.running(folder / "chaos", options, patience=600 if LONG else 60) as sandbox,
        kube.from_file(Path(sandbox.environment()["KUBECONFIG"])) as api,
        connected(converging.access(sandbox)) as bus,
        asyncio.TaskGroup() as group,
    ):
        provider = roles.provider_kubeconfig(sandbox.folder)
        shoots = Shoots(api, provider, SEED, SHOOTS)
        hasty = Hasty(api, provider, SEED, CHANGES, CLIENTS)
        server = sandbox.environment()["DNS_SERVER"]
        before = frozenset([one.name async for one in accounts.found(api, NAMESPACES)])
        told = Accounts(api, hasty, shoots, server, accounts.transferred(server), before)
        envoys, journal = Envoys(sandbox.folder / "edge"), Journal(converging.access(sandbox))
        witness = Witness(api)
        looking = [group.create_task(look) for look in (envoys.run(), witness.run(), witness.run_book(bus))]
        yield World(sandbox, api, envoys, shoots, hasty, journal, told, witness)
        for task in looking:
            task.cancel()
