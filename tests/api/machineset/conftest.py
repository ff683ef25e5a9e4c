"""Workers that serve MachineSets and MachineDeployments, and a simulated driver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.kindworld import KindWorld
from tests.support.machines import MachineClient, machine_client
from tests.support.sharedworld import nats, shared, world

__all__ = ["client", "nats", "shared", "world"]


@pytest_asyncio.fixture(loop_scope="module")
async def client(world: KindWorld) -> AsyncIterator[MachineClient]:
    async with machine_client(world) as made:
        yield made
