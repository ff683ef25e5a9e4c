"""A world in which backups are kept, for the tests of a module."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.api.backups.keeping import Backups, opened
from tests.support import leftovers
from tests.support.natsserver import NatsServer, started
from tests.support.servers import ControlPlane
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backups]:
    folder = tmp_path_factory.mktemp("kept")
    with started(NatsServer(folder / "nats")) as nats:
        async with opened(plane, nats, folder / "backups") as made:
            yield made


@pytest_asyncio.fixture(loop_scope="module")
async def backups(plane: ControlPlane, kept: Backups) -> AsyncIterator[Backups]:
    """The same for all, with an empty disk."""
    leftovers.expect(plane, BACKUP_BUCKETS, BACKUP_ENTRIES)
    await kept.world.quiet()
    shutil.rmtree(kept.root)
    kept.root.mkdir()
    yield kept
    kept.world.require_all_at_work()
