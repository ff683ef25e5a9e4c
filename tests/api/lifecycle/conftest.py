"""A stage for runs of extension objects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.lifecycle.stage import Stage, staged
from tests.support.servers import ControlPlane
from tests.support.shortkeys import shortest_keys

__all__ = ["shortest_keys", "stage"]


@pytest_asyncio.fixture
async def stage(plane: ControlPlane, nats_url: str) -> AsyncIterator[Stage]:
    async with staged(plane, nats_url) as made:
        yield made
