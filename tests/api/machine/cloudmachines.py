"""Shoots of clouds with machines: their Pods are simulated, and become nodes of the same cluster."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.api.machine.machines import Machines
from tests.api.worker import workerobjects
from tests.support import cloudshoots
from tests.support.cloudshoots import cloud_shoot, infrastructure
from tests.support.kindworld import KindWorld
from tests.support.machines import join, leave
from tests.support.machinesimulator import MachineSimulator
from tests.support.running import running
from windowbox.models import refs

NAME = "cloud"


@contextlib.asynccontextmanager
async def shoot_of(
    world: KindWorld, cloud: str, changes: dict[str, Any] | None = None
) -> AsyncIterator[Machines]:
    """A Shoot of a cloud with its Infrastructure and its Worker; `changes` of its pools."""
    shoot = await cloud_shoot(world, cloud)
    await infrastructure(shoot, cloud)
    simulator = MachineSimulator(world.kube, world.kube, f"infra-{shoot.namespace}")
    made = Machines(world, shoot, simulator)
    await join(shoot)
    await cloudshoots.worker(shoot, cloud, changes)
    async with running(simulator.run()):
        yield made
        for kind in (refs.WORKERS, refs.INFRASTRUCTURES):
            await shoot.delete(kind, NAME)
            await shoot.until_gone(kind, NAME)
        await leave(shoot)


async def change(made: Machines, cloud: str, changes: dict[str, Any]) -> None:
    """Change the pools of the example, and wait until the Worker is ready again."""
    spec = await cloudshoots.worker_spec(made.shoot, cloud, changes)
    await made.shoot.ask(refs.WORKERS, NAME, spec=spec)
    await made.shoot.until_ready(refs.WORKERS, NAME)


async def machines_of(made: Machines) -> dict[str, str]:
    """The names of the Machines, and the ids of their instances."""
    found = await workerobjects.listed(made.shoot, refs.MACHINES)
    return {one.name: str(one.spec["providerID"]) for one in found}


async def move(made: Machines) -> None:
    """Migrate the Worker to another seed, which is the same namespace, emptied."""
    shoot = made.shoot

    async def tell(operation: str) -> None:
        status = {"lastOperation": {"type": operation, "state": "Processing"}}
        await shoot.merge(refs.CLUSTERS, shoot.namespace, {"spec": {"shoot": {"status": status}}})

    state, worker = await workerobjects.state(shoot), await shoot.get(refs.WORKERS, NAME)
    assert worker
    await tell("Migrate")
    await shoot.ask(refs.WORKERS, NAME, "migrate")
    await shoot.until(refs.WORKERS, NAME, lambda found: found is not None and not found.finalizers)
    await workerobjects.forget_machines(shoot, NAME)
    await shoot.world.quiet()
    await tell("Restore")
    await shoot.create(refs.WORKERS, NAME, worker.spec, operation="wait-for-state")
    await shoot.merge(refs.WORKERS, NAME, {"status": {"state": state}}, part="status")
    await shoot.ask(refs.WORKERS, NAME, "restore")
    await shoot.until_ready(refs.WORKERS, NAME)
