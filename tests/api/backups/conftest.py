"""A world in which backups are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.api.backups.keeping import Backups, opened
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane


@pytest_asyncio.fixture
async def backups(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> AsyncIterator[Backups]:
    async with opened(plane, nats, tmp_path / "backups") as made:
        yield made
