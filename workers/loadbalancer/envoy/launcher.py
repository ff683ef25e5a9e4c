"""The launcher: starts and ends Envoys for an edge in another Pod, so that they outlive it.

Both share a folder of their node. The edge writes the files of an Envoy there and asks for its start over a
Unix socket beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from aiohttp import web

from windowbox.errors import Refused, Unreachable
from workers.loadbalancer.envoy import folders
from workers.loadbalancer.envoy.process import Process, Processes

logger = logging.getLogger(__name__)

SOCKET = "launcher.sock"
_LOCK = "launcher.lock"
_WAIT = 3.0
"""Seconds for which a question for an Envoy's end waits: less than those who ask do."""
_ENVOY = "/envoys/{name:[a-z0-9-]+}/{generation:[0-9]+}"


class Launcher:
    """Answers `GET /envoys`, and for each Envoy `POST …/start`, `POST …/end` and `GET …/ended`."""

    def __init__(self, folder: Path, *, program: Path | None = None) -> None:
        self._folder = folder
        self._processes = Processes(folder, program=program)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while the block runs; all Envoys end with it."""
        with _alone(self._folder):
            runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=1)
            await runner.setup()
            try:
                await web.UnixSite(runner, str(self._folder / SOCKET)).start()
                yield
            finally:
                await runner.cleanup()
                await asyncio.gather(*(one.end() for one in await self._running()))

    def _application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.get("/envoys", self._listed),
                web.post(f"{_ENVOY}/start", self._started),
                web.post(f"{_ENVOY}/end", self._ended),
                web.get(f"{_ENVOY}/ended", self._has_ended),
            ]
        )
        return application

    async def _listed(self, _: web.Request) -> web.Response:
        return web.json_response([[one.name, one.generation] for one in await self._running()])

    async def _started(self, request: web.Request) -> web.Response:
        if self._asked_for(request) is None:
            name, generation = request.match_info["name"], int(request.match_info["generation"])
            try:
                with folders.writing(self._folder / name):
                    self._processes.launch(name, generation)
            except Unreachable as error:
                return web.Response(status=409, text=str(error))
        return web.Response()

    async def _ended(self, request: web.Request) -> web.Response:
        if one := self._asked_for(request):
            await one.end()
        return web.Response()

    async def _has_ended(self, request: web.Request) -> web.Response:
        if one := self._asked_for(request):
            try:
                async with asyncio.timeout(_WAIT):
                    await one.ended()
            except TimeoutError:
                return web.json_response(False)
        return web.json_response(True)

    def _asked_for(self, request: web.Request) -> Process | None:
        return self._processes.running(request.match_info["name"], int(request.match_info["generation"]))

    async def _running(self) -> list[Process]:
        found = [await self._processes.found(name) for name in await self._processes.names()]
        return [one for several in found for one in several]


async def run(folder: Path, program: Path | None) -> None:
    """Serve until this process is asked to end."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    async with Launcher(folder, program=program).serving():
        logger.info("Envoys are run in %s", folder)
        await asked.wait()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refused if another launcher has this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / _LOCK
    lock.touch(mode=0o600)  # whoever may read it could hold it
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(
                f"another launcher runs Envoys in {folder}: give each a folder of its own"
            ) from error
        yield
