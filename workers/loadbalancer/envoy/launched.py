"""Envoys that a launcher in another Pod of this node runs: they outlive the edge with its Pod."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import orjson

from windowbox.errors import TransientError, Unreachable
from workers.loadbalancer.envoy import hostnetwork, unixhttp
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.infolder import HostFolders, InFolder
from workers.loadbalancer.envoy.launcher import SOCKET

logger = logging.getLogger(__name__)

_PAUSE = 0.2
"""Seconds until a launcher that does not answer is asked again."""
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
        await envoy.tell("start")
        return envoy

    async def _running(self) -> list[tuple[str, int]]:
        try:
            found = orjson.loads(await unixhttp.request(self._folder / SOCKET, "/envoys"))
        except Unreachable as error:
            raise Unreachable(f"the launcher does not answer ({error}); {_ELSEWHERE}") from error
        return [(name, generation) for name, generation in found]

    def _envoy(self, name: str, generation: int) -> LaunchedEnvoy:
        return LaunchedEnvoy(self._place(name, generation), self._folder / SOCKET)


class LaunchedEnvoy(InFolder):
    """An Envoy that a launcher runs. The launcher's image decides which Envoy that is."""

    def __init__(self, place: Path, launcher: Path) -> None:
        super().__init__(place)
        self._launcher = launcher

    async def tell(self, what: str) -> None:
        await unixhttp.request(self._launcher, self._path(what), post=True)

    async def outdated(self) -> bool:
        return False

    async def ended(self) -> None:
        """Also if the launcher was started again: its Envoys ended with it."""
        loop = asyncio.get_running_loop()
        told = loop.time()
        while True:
            try:
                if await unixhttp.request(self._launcher, self._path("ended")) == b"true":
                    return
                told = loop.time()
            except TransientError as error:
                if loop.time() - told >= _AWAY:
                    logger.error("%s: the launcher does not answer (%s); %s", self.name, error, _ELSEWHERE)
                    told = loop.time()
                await asyncio.sleep(_PAUSE)

    async def end(self) -> None:
        await self.tell("end")

    def _path(self, what: str) -> str:
        return f"/envoys/{self.name}/{self.generation}/{what}"
