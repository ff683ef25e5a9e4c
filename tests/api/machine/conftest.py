"""The driver of Machines at work, and a Shoot whose kubelets are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.machine.machines import Machines, machines
from tests.support.kindworld import KindWorld


@pytest_asyncio.fixture
async def made(world: KindWorld) -> AsyncIterator[Machines]:
    async with machines(world) as found:
        yield found
