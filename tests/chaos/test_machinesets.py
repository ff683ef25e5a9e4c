"""Workers die while machines are replaced: never too many, never too few, and none made twice."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.chaos.workers import Workers, working
from tests.support import leftovers
from tests.support.kindworld import kind_world
from tests.support.machines import MachineClient, complete, deployment, machine_client, rolled
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES

_LONG = os.environ.get("CHAOS") == "long"
_MACHINES, _SURGE, _UNAVAILABLE = (60, 6, 4) if _LONG else (8, 2, 1)
_PATIENCE = 300.0
_POOLS = ("machinedeployment", "machineset")


@dataclass
class Count:
    """Machines as they were announced, one change after the other."""

    names: dict[str, str] = field(default_factory=dict)
    """Of each uid."""
    living: dict[str, bool] = field(default_factory=dict)
    available: dict[str, bool] = field(default_factory=dict)
    most: int = 0
    fewest: int = 1 << 30

    def take(self, machine: Object, *, rolling: bool) -> None:
        self.names[machine.uid] = machine.name
        phase = (machine.status.get("currentStatus") or {}).get("phase")
        self.living[machine.uid] = not machine.deleting
        self.available[machine.uid] = not machine.deleting and phase == "Running"
        if rolling:
            self.most = max(self.most, sum(self.living.values()))
            self.fewest = min(self.fewest, sum(self.available.values()))


async def killing(client: MachineClient, workers: Workers) -> None:
    """Kill a worker after every few changes of machines, until cancelled."""
    seen = 0
    while True:
        await asyncio.sleep(0.05)  # the driver's list has no event
        if len(client.driver.seen) - seen > 2 * _MACHINES:
            seen = len(client.driver.seen)
            workers.kill()


async def failing(client: MachineClient, plane: ControlPlane) -> None:
    """Kill the API server twice while machines roll, or just after, each time for a second."""
    assert plane.server
    for _ in range(2):
        enough = len(client.driver.seen) + _MACHINES

        async def rolls(enough: int = enough) -> bool:
            if len(client.driver.seen) >= enough:
                return True
            [found] = await client.listed(MACHINE_DEPLOYMENTS)
            return rolled(found)  # before that many changes were seen

        await eventually(rolls, patience=_PATIENCE)
        plane.server.kill()
        await asyncio.sleep(1)  # for so long nobody answers
        await asyncio.to_thread(plane.server.start_again)


@pytest.mark.long  # that nothing is made twice, the next test shows; api/watchers shows lost API servers
@rule("C3-R5", "C15-R5")
async def test_the_api_server_is_away_while_machines_roll(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(kind_world(plane, nats))
        client = await stack.enter_async_context(machine_client(world, remembers=True))
        await stack.enter_async_context(working(world, tmp_path, *_POOLS, count=2))
        await client.make(deployment(replicas=_MACHINES, surge=_SURGE, unavailable=_UNAVAILABLE))
        async with asyncio.timeout(_PATIENCE):
            await client.until(complete, patience=_PATIENCE)
            await client.roll("big")
            await failing(client, plane)
            await client.until(rolled, patience=_PATIENCE)
        machines = await client.machines()
    assert {one.spec["class"]["name"] for one in machines} == {"big"}
    made = {one.uid: one.name for one in client.driver.seen}
    # Nothing was made that was not needed, though answers to creations were lost.
    assert len(made) == len(set(made.values())) == 2 * _MACHINES


@rule("C5", "C3-R5", "C15-R5")
async def test_workers_die_while_machines_roll(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(leftovers.removed())
        world = await stack.enter_async_context(kind_world(control_plane, nats))
        leftovers.expect(control_plane, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES)
        client = await stack.enter_async_context(machine_client(world, remembers=True, leaving=0.2))
        workers = await stack.enter_async_context(working(world, tmp_path, *_POOLS, count=2))
        body = deployment(replicas=_MACHINES, surge=_SURGE, unavailable=_UNAVAILABLE)
        await client.make(body)
        count = Count()
        async with asyncio.timeout(_PATIENCE):
            await client.until(complete, patience=_PATIENCE)
            before = len(client.driver.seen)
            killer = asyncio.create_task(killing(client, workers))
            try:
                await client.roll("big")
                await client.until(rolled, patience=_PATIENCE)
            finally:
                killer.cancel()
        for number, machine in enumerate(client.driver.seen):
            count.take(machine, rolling=number >= before)
        machines = await client.machines()
    assert workers.kills > 1
    assert {one.spec["class"]["name"] for one in machines} == {"big"}
    assert count.most <= _MACHINES + _SURGE
    assert count.fewest >= _MACHINES - _UNAVAILABLE
    # Nothing was made that was not needed, and no name was given twice.
    assert len(count.names) == 2 * _MACHINES
    assert len(set(count.names.values())) == len(count.names)
