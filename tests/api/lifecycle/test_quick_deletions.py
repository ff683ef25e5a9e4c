"""Objects that are deleted right after their creation leave nothing behind.

The API server's DELETE may read an object before our finalizer is on it and remove it afterwards: the object
is gone without a deletionTimestamp.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path

import pytest

from tests.api.lifecycle import kindtable, scenes
from tests.api.lifecycle.scenes import Delete, Scene, Servers
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane, NameServer
from windowbox.errors import Missing, TransientError

NUMBER = int(os.environ.get("QUICK_DELETIONS", "6"))
"""Objects of each kind; a thousand for the long version."""
AT_ONCE = 24
LATEST = (0.03, 0.3)
"""Seconds between creation and deletion, at most: on a quiet machine, and on a busy one."""


DAILY = ("backupbucket", "bastion")
"""One without a namespace, and one whose objects are in another cluster.

Those of the others are long.
"""
POOLS = [
    pytest.param(pool, marks=[] if pool in DAILY else pytest.mark.long)
    for pool in sorted(kindtable.TRAITS.keys() | {"ingress", "loadbalancer", "worker"})
]


@pytest.mark.timeout(300 + NUMBER)
@pytest.mark.parametrize("pool", POOLS)
async def test_objects_deleted_at_once_leave_nothing(
    request: pytest.FixtureRequest, nats: NatsServer, named: NameServer, tmp_path: Path, pool: str
) -> None:
    # Load balancers would serve the Services that tests of other kinds have left.
    plane: ControlPlane = request.getfixturevalue("control_plane" if pool == "loadbalancer" else "plane")
    async with scenes.scene(Servers(plane, nats, tmp_path, named), pool) as scene:
        await create_and_delete(scene)

        async def nothing() -> bool:
            return not await scene.left()

        with contextlib.suppress(TimeoutError):
            await eventually(nothing, patience=90 + NUMBER / 10)
        left = await scene.left()
        assert not left, f"{len(left)} left: {left[:5]}"


async def create_and_delete(scene: Scene) -> None:
    """Make objects and delete each a moment later."""
    free, chance = asyncio.Semaphore(AT_ONCE), random.Random(7)

    async def one(number: int) -> None:
        async with free:
            delete = await scene.create(number)
            # The deletion has to meet the run at every stage.
            await asyncio.sleep(chance.uniform(0, chance.choice(LATEST)))
            await deleted(delete)

    async with asyncio.TaskGroup() as group:
        for number in range(NUMBER):
            group.create_task(one(number))


async def deleted(delete: Delete) -> None:
    """Delete for certain: an API server under load may not answer at first."""

    async def attempt() -> bool:
        try:
            await delete()
        except Missing:
            pass
        except TransientError:
            return False
        return True

    await eventually(attempt)
