"""Clusters that leave, come back and refuse us while replies of the bus are late: nothing is lost.

Each seed is a run of its own. Where watches were not told of the end of their session, they failed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from nats.aio.msg import Msg

from bus import streams, subjects
from bus.clusters.registry import Member
from bus.leases.leases import Leases
from bus.messages import OPERATION
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.transport.directclient import Requests
from tests.servers.watchers.conftest import KINDS, PATIENCE, Watched, watched
from tests.support.apiservers import ApiServers
from tests.support.running import eventually, running
from watchers import purging
from watchers.watching import Watching
from windowbox.errors import WindowboxError
from windowbox.models.refs import SERVICES, ObjectRef

ROUNDS = 12
_PAUSES = (0.0, 0.0, 0.001, 0.005, 0.02, 0.1)


@pytest.mark.long
@pytest.mark.parametrize("seed", [31, 32])
async def test_nothing_is_lost_in_any_order(
    bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = Random(seed)
    monkeypatch.setattr(Requests, "ask", late(Requests.ask, dice))
    monkeypatch.setattr(purging, "_PROPAGATION_SECONDS", 0.3)
    await streams.ensure(bus)
    async with watched(bus, apis, tmp_path, 4) as there:
        leases, first = Leases(bus, "two", "watch"), there.watching
        second = Watching(bus, leases, first.clusters, first.registry, tuple(kind.id for kind in KINDS))
        async with running(leases.run(), second.run()):
            world, told = World(there, tmp_path, dice), []
            for number in range(ROUNDS):
                for _ in range(dice.randint(1, 8)):
                    act = dice.choice(
                        (world.leave, world.leave, world.join, world.refuse, world.lose, world.pause)
                    )
                    told.append(act.__name__)
                    await act(dice.choice(there.members))
                for name in there.members:
                    apis.put(
                        name, SERVICES, {"metadata": {"namespace": "default", "name": f"round-{number}"}}
                    )
                for name in there.members:
                    try:
                        await eventually(lambda name=name: world.is_told(name), PATIENCE)  # type: ignore[misc]
                    except TimeoutError:
                        pytest.fail(f"{name}: {told}; {first.states}; {second.states}")


class World:
    """What happens to the clusters, and what the bus ought to hold of them."""

    def __init__(self, there: Watched, folder: Path, dice: Random) -> None:
        self._there, self._folder, self._dice = there, folder, dice
        self._joined = set(there.members)

    async def leave(self, name: str) -> None:
        if name in self._joined:
            await self._there.watching.registry.leave(name)
            self._joined.remove(name)

    async def join(self, name: str) -> None:
        file = str(self._folder / f"{name}.kubeconfig")
        await self._there.watching.registry.join(Member(id=name, file=file))
        self._joined.add(name)

    async def refuse(self, name: str) -> None:
        """Have the API server answer 401 for a moment, so that somebody gets a client anew."""
        clusters, apis = self._there.watching.clusters, self._there.apis
        apis.unknowing.add(name)
        with contextlib.suppress(WindowboxError):
            await (await clusters.get(name)).version()
        apis.unknowing.remove(name)
        with contextlib.suppress(WindowboxError):
            await clusters.get(name)

    async def lose(self, _: str) -> None:
        """Have all leases lost."""
        await self._there.bus.api(f"STREAM.PURGE.KV_{streams.LEASES}")

    async def pause(self, _: str) -> None:
        await asyncio.sleep(self._dice.choice(_PAUSES))  # orders differ by how far all has come

    async def is_told(self, name: str) -> bool:
        """Whether the bus holds just the Services of a cluster that takes part, and none of others."""
        services = self._services(name) if name in self._joined else set()
        found, all_of = set(), [subjects.seen_kind(name, SERVICES.id)]
        with contextlib.suppress(WindowboxError):
            async for stored in consumers.snapshot(
                self._there.bus, streams.OBJECTS, all_of, headers_only=True
            ):
                if stored.headers[OPERATION] != "DELETED":
                    found.add(stored.subject)
            return found == services
        return False

    def _services(self, name: str) -> set[str]:
        names = self._there.apis.names(name, SERVICES)
        return {subjects.seen(ObjectRef(name, SERVICES.id, *one)) for one in names}


Ask = Callable[..., Awaitable[Msg]]


def late(ask: Ask, dice: Random) -> Ask:
    """Questions to the bus that leave late, and whose answers arrive late."""

    async def asked(*args: object, **more: object) -> Msg:
        try:
            await asyncio.sleep(dice.choice(_PAUSES))  # on the way to the server
            return await ask(*args, **more)
        finally:
            await asyncio.sleep(dice.choice(_PAUSES))  # and back

    return asked
