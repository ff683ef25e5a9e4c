"""Workers that serve MachineSets and MachineDeployments, and a simulated driver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.kindworld import KindWorld, kind_world
from tests.support.machines import MachineClient, machine_client
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "machinedeployment", "machineset") as made:
        yield made


@pytest_asyncio.fixture
async def client(world: KindWorld) -> AsyncIterator[MachineClient]:
    async with machine_client(world) as made:
        yield made
