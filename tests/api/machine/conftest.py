"""The driver of Machines at work, in a world of the module's, and a Shoot whose kubelets are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.api.machine.machines import Machines, machines
from tests.support.kindworld import KindWorld
from tests.support.sharedworld import nats, shared, world

__all__ = ["nats", "shared", "world"]


@pytest_asyncio.fixture(loop_scope="module")
async def made(request: pytest.FixtureRequest, world: KindWorld) -> AsyncIterator[Machines]:
    simulated = request.node.get_closest_marker("simulated")
    async with machines(world, **(simulated.kwargs if simulated else {})) as found:
        yield found
