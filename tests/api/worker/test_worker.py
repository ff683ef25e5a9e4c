"""Workers, from the API to the MachineDeployments that are made of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.infrastructure.infrastructures import says
from tests.api.worker.simulatedmcm import simulated
from tests.api.worker.workerobjects import NAME, create, names, pool, shoot_with
from tests.support.kindworld import KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.refs import (
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    SECRETS,
    WORKERS,
)


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "worker") as made:
        yield made


@rule("A4-R1", "A11-R9", "A18-R5")
async def test_a_worker_gets_its_machines_and_goes(world: KindWorld) -> None:
    small = pool(minimum=3, maximum=5, zones=["a", "b"])
    shoot = await shoot_with(world, small)
    await create(shoot, small)
    found = await shoot.until(WORKERS, NAME, says("Processing", "to create the updated machine set"))
    assert found
    first, second = (f"{shoot.namespace}-small-z{zone}" for zone in (1, 2))
    assert found.status["machineDeployments"] == [
        {"name": first, "minimum": 2, "maximum": 3},
        {"name": second, "minimum": 1, "maximum": 2},
    ]
    assert found.status["conditions"][0]["status"] == "False"
    async with simulated(shoot.kube, shoot.namespace) as mcm:
        mcm.held = True
        mcm.wake()
        text = (
            "Waiting until machines are available (0/3 desired machine(s) available, 3/3 machine(s) updated"
        )
        await shoot.until(WORKERS, NAME, says("Processing", text))
        mcm.held = False
        mcm.wake()
        found = await shoot.until_ready(WORKERS, NAME)
        assert found.status["conditions"][0]["message"] == "All health checks successful"
        assert found.finalizers == ("extensions.gardener.cloud/worker",)

        await shoot.delete(WORKERS, NAME)
        await shoot.until_gone(WORKERS, NAME)
    for kind in (MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES):
        assert await names(shoot, kind) == []
    assert await names(shoot, SECRETS, **{"gardener.cloud/purpose": "machineclass"}) == []
