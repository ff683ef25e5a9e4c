"""What a worker can tell from the bus, with no more rights than workers have."""

from __future__ import annotations

import logging

import pytest
import pytest_asyncio

from bus import streams, subjects
from bus.intents import PATCH
from bus.messages import Reason, Wish
from bus.outcomes import Ignored, Outcome
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from tests.support.roles import RoleServer
from tests.support.rules import rule
from tests.support.running import eventually, running
from windowbox.models.refs import BASTIONS, RUNTIME, ObjectRef
from workers.kinds.heartbeat import heartbeatpool

KEY = subjects.key(ObjectRef(RUNTIME, BASTIONS.id, "shoot--t--one", "mine"))
LONG = 60.0


class Patcher:
    """One who has never anything to write."""

    async def handle(self, item: Item) -> Outcome:
        return Ignored(item.key)

    async def quarantine(self, item: Item) -> None:
        raise AssertionError(item.key)


@pytest_asyncio.fixture
async def roles(roles: RoleServer) -> RoleServer:
    async with connected(roles.access("watcher")) as watcher:
        await streams.ensure(watcher)
    return roles


async def until(bus: Bus, said: str, patience: float = LONG) -> None:
    async def look() -> bool:
        problem = await heartbeatpool.bus_problem(bus, patience)
        return said in problem if said else not problem

    await eventually(look)


@rule("HB-2")
async def test_idle_and_stopped_patchers_are_distinguished(
    roles: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(roles.access("worker")) as bus:
        assert "no patcher has come yet" in await heartbeatpool.bus_problem(bus, LONG)
        async with connected(roles.access("patcher")) as other, running(Pool(other, PATCH, Patcher()).run()):
            await until(bus, "")
        await until(bus, "no patcher asks for work")
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []


@rule("HB-2")
async def test_an_overdue_item_is_reported_with_its_pool(roles: RoleServer) -> None:
    async with (
        connected(roles.access("worker")) as bus,
        connected(roles.access("patcher")) as other,
        running(Pool(other, PATCH, Patcher()).run()),
    ):
        await until(bus, "")
        await Queue(bus, "bastion").wish(KEY, Wish(reason=Reason.EVENT))
        assert await heartbeatpool.bus_problem(bus, LONG) == ""
        await until(bus, "something in the queue of bastion has waited", patience=0.01)
