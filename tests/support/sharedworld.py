"""One world for the tests of a module, which take longer to start one than to run.

A folder's conftest imports the fixtures; its modules have an event loop of their own:
`pytest.mark.asyncio(loop_scope="module")`. Not for tests of nodes, or of which clusters there are: those of
the tests before are still among them.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import leftovers
from tests.support.kindworld import KindWorld, kind_world, require_notes
from tests.support.natsserver import NatsServer, started
from tests.support.servers import ControlPlane
from windowbox.kinds import POOLS


@dataclass
class SharedWorld:
    """At most one world at a time, since each would serve the objects of all.

    Tests have Shoots of their own. What a test leaves is removed before the next one begins, which waits
    until the workers have seen it.
    """

    folder: Path
    _world: KindWorld | None = None
    _served: pytest.Mark | None = None
    _started: int = 0
    _running: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def serving(self, plane: ControlPlane, served: pytest.Mark) -> KindWorld:
        """The world of the test before, if it serves the same pools with the same settings."""
        if self._world and served == self._served:
            leftovers.expect(plane, *(POOLS[name].resource for name in served.args))
            await self._world.quiet()
            return self._world
        await self.end()
        self._started += 1
        nats = self._running.enter_context(started(NatsServer(self.folder / f"nats-{self._started}")))
        opened = kind_world(plane, nats, *served.args, **served.kwargs)
        self._world, self._served = await self._running.enter_async_context(opened), served
        return self._world

    async def check(self) -> None:
        """What a world of a test's own requires at its end."""
        assert self._world
        self._world.require_all_at_work()
        await require_notes(self._world.nats)

    async def end(self) -> None:
        running, self._running = self._running, contextlib.AsyncExitStack()
        self._world = self._served = None
        await running.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedWorld]:
    made = SharedWorld(tmp_path_factory.mktemp("shared"))
    yield made
    await made.end()


@pytest_asyncio.fixture(loop_scope="module")
async def world(
    request: pytest.FixtureRequest, plane: ControlPlane, shared: SharedWorld
) -> AsyncIterator[KindWorld]:
    """A process of each role: workers serve the pools, with the settings, of `@pytest.mark.serves(…)`."""
    failed = request.session.testsfailed
    served = request.node.get_closest_marker("serves")
    yield await shared.serving(plane, served)
    if request.session.testsfailed > failed:
        await shared.end()
    else:
        await shared.check()


@pytest_asyncio.fixture(loop_scope="module")
async def nats(shared: SharedWorld, nats: NatsServer) -> NatsServer:
    """For a world of the test's own, which is then the only one."""
    await shared.end()
    return nats
