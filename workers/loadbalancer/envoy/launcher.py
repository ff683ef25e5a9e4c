"""The launcher: starts and ends Envoys for an edge in another Pod of its node, so that they outlive that Pod.

Both mount one folder of the node. The edge writes the files of an Envoy there, and requests its start over a
Unix socket beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import orjson
from aiohttp import web

from windowbox.errors import Refused, TransientError, Unreachable
from workers.loadbalancer.envoy import hostfolders, hostnetwork
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.hostfolders import HostFolders, InFolder
from workers.loadbalancer.envoy.process import Process, Processes

logger = logging.getLogger(__name__)

SOCKET = "launcher.sock"
_LOCK = "launcher.lock"
_WAIT = 3.0
"""Seconds for which the response to `ended` is held while the Envoy runs: less than the client's timeout."""
_ENVOY = "/envoys/{name:[a-z0-9-]+}/{generation:[0-9]+}"

_PAUSE = 0.2
"""Seconds between two requests to a launcher that does not answer."""
_AWAY = 30.0
"""Seconds between two errors that are logged while the launcher is away."""
_ELSEWHERE = "if its Pod is on another node now, delete the edge's Pod, too, so that it comes up there"


class Launcher:
    """Answers `GET /envoys`, and for each Envoy `POST …/start`, `POST …/end` and `GET …/ended`."""

    def __init__(self, folder: Path, *, program: Path | None = None) -> None:
        self._folder = folder
        self._processes = Processes(folder, program=program)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while the block runs; at its end, all Envoys are ended."""
        application = web.Application()
        application.add_routes(
            [
                web.get("/envoys", self._listed),
                web.post(f"{_ENVOY}/start", self._started),
                web.post(f"{_ENVOY}/end", self._ended),
                web.get(f"{_ENVOY}/ended", self._has_ended),
            ]
        )
        with _locked(self._folder):
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
            await runner.setup()
            try:
                await web.UnixSite(runner, str(self._folder / SOCKET)).start()
                yield
            finally:
                await runner.cleanup()
                await asyncio.gather(*(one.end() for one in await self._running()))

    async def _listed(self, _: web.Request) -> web.Response:
        return web.json_response([[one.name, one.generation] for one in await self._running()])

    async def _started(self, request: web.Request) -> web.Response:
        if self._requested(request) is None:
            name, generation = request.match_info["name"], int(request.match_info["generation"])
            try:
                with hostfolders.writing(self._folder / name):
                    self._processes.launch(name, generation)
            except Unreachable as error:
                return web.Response(status=409, text=str(error))
        return web.Response()

    async def _ended(self, request: web.Request) -> web.Response:
        if one := self._requested(request):
            await one.end()
        return web.Response()

    async def _has_ended(self, request: web.Request) -> web.Response:
        if one := self._requested(request):
            try:
                async with asyncio.timeout(_WAIT):
                    await one.ended()
            except TimeoutError:
                return web.json_response(False)
        return web.json_response(True)

    def _requested(self, request: web.Request) -> Process | None:
        return self._processes.running(request.match_info["name"], int(request.match_info["generation"]))

    async def _running(self) -> list[Process]:
        found = [await self._processes.found(name) for name in await self._processes.names()]
        return [one for several in found for one in several]


async def run(folder: Path, program: Path | None) -> None:
    """Serve until this process gets SIGTERM or SIGINT."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    async with Launcher(folder, program=program).serving():
        logger.info("Envoys are run in %s", folder)
        await asked.wait()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Refused if another launcher has this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / _LOCK
    lock.touch(mode=0o600)  # flock needs no more than read access
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(
                f"another launcher runs Envoys in {folder}: give each a folder of its own"
            ) from error
        yield


class Launched(HostFolders):
    """The edge's side: Envoys of a launcher that has the same folder and the same network."""

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
