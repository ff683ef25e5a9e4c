"""Envoys that a launcher runs in another Pod of this node, so that they outlive the edge's Pod.

Both mount one folder of the node. The edge writes the files of an Envoy there, and requests its start over a
Unix socket beside them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import orjson

from windowbox.errors import TransientError, Unreachable
from workers.loadbalancer.envoy import hostfolders
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.hostfolders import HostFolders, InFolder
from workers.loadbalancer.launcher.launcher import SOCKET
from workers.loadbalancer.links import hostnetwork

logger = logging.getLogger(__name__)

_PAUSE = 0.2
"""Seconds between two requests to a launcher that does not answer."""
_AWAY = 30.0
"""Seconds between two errors that are logged while the launcher is away."""
_ELSEWHERE = "if its Pod is on another node now, delete the edge's Pod, too, so that it comes up there"


class Launched(HostFolders):
    """Envoys of a launcher that has the same folder and the same network."""

    async def found(self, name: str) -> Sequence[LaunchedEnvoy]:
        return [self._envoy(name, generation) for one, generation in await self._running() if one == name]

    async def names(self) -> Sequence[str]:
        return sorted({name for name, _ in await self._running()})

    async def start(self, order: Order) -> LaunchedEnvoy:
        hostnetwork.keep_waiting_connections()
        envoy = self._envoy(order.name, order.generation)
        await envoy.end()
        self._fill(order, [one.generation for one in await self.found(order.name)])
        await envoy.request("start", post=True)
        return envoy

    async def _running(self) -> list[tuple[str, int]]:
        try:
            found = orjson.loads(await hostfolders.ask(self._folder / SOCKET, "/envoys"))
        except Unreachable as error:
            raise Unreachable(f"the launcher does not answer ({error}); {_ELSEWHERE}") from error
        return [(name, generation) for name, generation in found]

    def _envoy(self, name: str, generation: int) -> LaunchedEnvoy:
        return LaunchedEnvoy(self._place(name, generation), self._folder / SOCKET)


class LaunchedEnvoy(InFolder):
    """An Envoy that a launcher runs. The program is that of the launcher's image."""

    def __init__(self, place: Path, launcher: Path) -> None:
        super().__init__(place)
        self._launcher = launcher

    async def request(self, what: str, *, post: bool = False) -> bytes:
        path = f"/envoys/{self.name}/{self.generation}/{what}"
        return await hostfolders.ask(self._launcher, path, post=post)

    async def outdated(self) -> bool:
        return False

    async def ended(self) -> None:
        """Wait until it has ended, also with its launcher: a restarted launcher does not know it."""
        loop = asyncio.get_running_loop()
        answered = loop.time()
        while True:
            try:
                if await self.request("ended") == b"true":
                    return
                answered = loop.time()
            except TransientError as error:
                if loop.time() - answered >= _AWAY:
                    logger.error("%s: the launcher does not answer (%s); %s", self.name, error, _ELSEWHERE)
                    answered = loop.time()
                await asyncio.sleep(_PAUSE)

    async def end(self) -> None:
        await self.request("end", post=True)
