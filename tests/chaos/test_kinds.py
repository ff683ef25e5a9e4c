"""Everything goes wrong while Shoots come, change and go; in the end each has its parts, and once."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from bus.connection import Bus, connected
from tests.chaos import buses, converging
from tests.chaos.converging import Journal, settled
from tests.chaos.havoc import Havoc, Plan
from tests.chaos.lacking import missing
from tests.chaos.shoots import Shoots
from tests.chaos.shoots_ending import Ending
from windowbox.clients import kube
from windowbox.sandbox import kubeconfigs, processes
from windowbox.sandbox.options import Options
from windowbox.sandbox.supervisor import Supervisor

LONG = os.environ.get("CHAOS") == "long"
SEED = int(os.environ.get("CHAOS_SEED", "7"))
SHOOTS = 24 if LONG else 6
PLAN = (
    Plan(seconds=420, kills=12, bus_restarts=3, api_restarts=2, dns_away=10, api_kills=2)
    if LONG
    else Plan(seconds=20, kills=1, bus_restarts=1, api_restarts=1, dns_away=0)
)
PATIENCE = (180 if LONG else 120) * buses.PATIENCE
"""Seconds to converge after the last blow."""


@pytest.mark.timeout((1500 if LONG else 300) * buses.PATIENCE)
async def test_shoots_converge_and_deleted_ones_leave_nothing(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    port = processes.free_port()
    options = Options(
        workers=2, watchers=2, patchers=2, simulated_nodes=2, nats_servers=buses.SERVERS,
        ports={"nats-server": port}, addresses=(f"127.{port >> 8}.{port & 255}.0/27",),
    )  # fmt: skip
    async with (
        Supervisor.running(tmp_path / "chaos", options) as sandbox,
        kube.from_file(Path(sandbox.environment()["KUBECONFIG"])) as api,
    ):
        access = converging.access(sandbox)
        journal = Journal(access)
        shoots = Shoots(api, kubeconfigs.provider(sandbox.folder), SEED, SHOOTS)
        havoc = Havoc(sandbox, PLAN, random.Random(SEED), journal.save)
        async with asyncio.TaskGroup() as group:
            group.create_task(shoots.run(PLAN.seconds))
            group.create_task(havoc.run())
        async with connected(access) as bus:
            problems = await settled(PATIENCE, lambda: _owed(bus), Ending(api, shoots).converged)
        await journal.save()
    assert not problems, "\n".join(problems)
    assert journal.overlaps() == []
    assert shoots.living
    assert shoots.dead


async def _owed(bus: Bus) -> list[str]:
    """What is to be done now. Those who waited for something look again later, though it has come."""
    return [what for what in await converging.waiting(bus) if not what.startswith("LATER")]
