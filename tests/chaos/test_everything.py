"""Everything goes wrong while objects of all kinds come, change and go; in the end all is accounted for.

`make chaos CHAOS_KILLS=100 CHAOS_CHANGES=10000` kills each a hundred times during ten thousand changes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import roles
from tests.chaos import accounts, converging, havoc
from tests.chaos.accounts import Accounts
from tests.chaos.arena import LONG, Arena, arena
from tests.chaos.converging import settled
from tests.chaos.edge_ending import EdgeEnding
from tests.chaos.hasty import Hasty
from tests.chaos.havoc import Havoc, Plan
from tests.chaos.shoots import Shoots
from windowbox.models.refs import NAMESPACES

logger = logging.getLogger(__name__)

SEED = int(os.environ.get("CHAOS_SEED", "7"))
KILLS = int(os.environ.get("CHAOS_KILLS", "12" if LONG else "1"))
"""Of each process of ours, and of NATS, the API server, named and Envoy."""
CHANGES = int(os.environ.get("CHAOS_CHANGES", "1000" if LONG else "60"))
SHOOTS, CLIENTS = (24, 16) if LONG else (6, 4)
PLAN = Plan(
    seconds=20.0 * KILLS, kills=KILLS, bus_restarts=KILLS, api_restarts=1, dns_away=10 if LONG else 3,
    api_kills=KILLS, dns_kills=KILLS, wipes=1 + KILLS // 20,
)  # fmt: skip
PATIENCE = 900 if LONG else 120 * havoc.PATIENCE
"""Seconds to converge after the last blow. What three kills in a row have met is quarantined for 600."""
RECORDING = os.environ.get("CHAOS_RECORDING")
"""Where to write a recording of the run: `tests/unit/replay/chaos.wbx` was made so."""


@pytest.mark.long  # servers/bus and api break each part alone; test_machinesets.py kills workers amid changes
@pytest.mark.timeout((1500 + 90 * KILLS if LONG else 360) * havoc.PATIENCE)
async def test_all_converges_and_deleted_objects_leave_nothing(tmp_path: Path) -> None:
    async with arena(
        tmp_path, prefix="0/25", patience=600 if LONG else 60, simulated_nodes=2, dns_ownership="chaos"
    ) as world:
        provider = roles.provider_kubeconfig(world.sandbox.folder)
        shoots = Shoots(world.kube, provider, SEED, SHOOTS)
        hasty = Hasty(world.kube, provider, SEED, CHANGES, CLIENTS)
        server = world.sandbox.environment()["DNS_SERVER"]
        before = frozenset([one.name async for one in accounts.found(world.kube, NAMESPACES)])
        account = Accounts(world.kube, hasty, shoots, server, accounts.transferred(server), before)
        await _suffer(world, shoots, hasty)
        problems = await _unsettled(world, account)
        await world.journal.save()
        if RECORDING:
            command = ["-m", "windowbox", "record", "--since", "1h", "-o", RECORDING, "--settings"]
            settings = str(world.sandbox.settings_file("operator"))
            await asyncio.to_thread(subprocess.check_call, [sys.executable, *command, settings], timeout=60)
    problems += world.problems
    logger.warning("%d runs, %d problems", len(world.journal.runs), len(problems))
    assert not problems, "\n".join(problems)
    assert shoots.living
    assert shoots.dead


async def _suffer(world: Arena, shoots: Shoots, hasty: Hasty) -> None:
    """Changes, and everything that goes wrong meanwhile."""
    breaking = Havoc(
        world.sandbox, PLAN, random.Random(SEED), world.journal.save, [world.envoys.kill] * KILLS
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(shoots.run(PLAN.seconds))
            group.create_task(hasty.run(PLAN.seconds))
            group.create_task(breaking.run())
    finally:
        killed = breaking.killed | {"envoy": world.envoys.kills}
        logger.warning("%d hasty changes; killed: %s", hasty.changes, dict(killed))


async def _unsettled(world: Arena, account: Accounts) -> list[str]:
    """What is still not as it ought to be."""
    edge = EdgeEnding(world.sandbox, world.kube, world.bus, world.envoys)

    async def owed() -> list[str]:
        # Those who waited for something look again later, though it has come.
        return [one for one in await converging.waiting(world.bus) if not one.startswith("LATER")]

    return await settled(
        PATIENCE, owed, account.converged, account.records, account.balancers, account.infrastructures,
        account.places, account.names, edge.entries, edge.owners, edge.envoy, edge.routes,
    )  # fmt: skip
