"""The driver of Machines at work, and a Shoot whose kubelets are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.machine.machines import Machines, machines
from tests.support.kindworld import KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "machine") as made:
        yield made


@pytest_asyncio.fixture
async def made(world: KindWorld) -> AsyncIterator[Machines]:
    async with machines(world) as found:
        yield found
