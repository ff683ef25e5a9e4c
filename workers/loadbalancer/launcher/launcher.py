"""The server of the launcher: a Unix socket in the folder that it shares with the edge."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from windowbox.errors import Refused, Unreachable
from workers.loadbalancer.launcher import programs
from workers.loadbalancer.launcher.programs import Programs
from workers.loadbalancer.links import addresses, hostnetwork

logger = logging.getLogger(__name__)

SOCKET = "launcher.sock"
_LOCK = "launcher.lock"

_WAIT = 3.0
"""Seconds for which the response to `ended` is held while the Envoy runs: less than the client's timeout."""
_PATIENCE = 5.0
"""Seconds for a client to send its request, and to take the response."""
_LARGEST = 4096
"""Bytes of a request."""
_MOST = 64
"""Connections at once. An edge has one for each Envoy, and one more."""

_REQUEST = re.compile(rb"(GET|POST) (\S+) HTTP/1\.[01]\r\n")
_ENVOY = re.compile(r"/envoys/([a-z0-9-]{1,63})/([0-9]{1,9})/(start|end|ended)")
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 409: "Conflict", 500: "Internal Server Error"}


class Launcher:
    """Answers `GET /envoys`, and for each Envoy `POST …/start`, `POST …/end` and `GET …/ended`."""

    def __init__(self, folder: Path, *, program: Path | None = None, yielding: bool = False) -> None:
        self._folder = folder
        self._yielding = yielding
        self._programs = Programs(folder, program)
        self._answering: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while the block runs; at its end, all Envoys are ended.

        If it is `yielding`, their addresses are removed then: other hosts may serve them from now on.
        """
        with _locked(self._folder):
            async with asyncio.TaskGroup() as group:

                def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    if len(self._answering) >= _MOST:
                        writer.transport.abort()
                        return
                    task = group.create_task(self._answer(reader, writer), name="launcher")
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)

                server = await asyncio.start_unix_server(accept, self._folder / SOCKET, limit=_LARGEST)
                try:
                    yield
                finally:
                    server.close()
                    for task in self._answering:
                        task.cancel()
            await asyncio.gather(*(one.end() for one in self._running()))
            if self._yielding:
                await addresses.leave(self._folder / hostnetwork.ADDED)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            status, body = await self._acted(head)
            lines = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Length: {len(body)}"]
            writer.write("\r\n".join([*lines, "Connection: close", "", body]).encode())
            async with asyncio.timeout(_PATIENCE):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            logger.debug("a client: %s", error or "too slow")
        finally:
            writer.transport.abort()

    async def _acted(self, head: bytes) -> tuple[int, str]:
        """The status and the body of the response."""
        request = _REQUEST.match(head)
        if request is None:
            return 400, "this is no request"
        method, path = (part.decode(errors="replace") for part in request.groups())
        try:
            if (method, path) == ("GET", "/envoys"):
                return 200, json.dumps([(one.name, one.generation) for one in self._running()])
            envoy = _ENVOY.fullmatch(path)
            if envoy and method == ("GET" if envoy[3] == "ended" else "POST"):
                return 200, await self._requested(envoy[1], int(envoy[2]), envoy[3])
        except Unreachable as error:
            return 409, str(error)
        except Exception:  # A bug: Envoys of other requests must go on running.
            logger.exception("%s %s", method, path)
            return 500, "see the launcher's log"
        return 404, "there is no such request"

    async def _requested(self, name: str, generation: int, what: str) -> str:
        running = self._programs.running(name, generation)
        match what:
            case "start":
                if running is None:
                    with programs.writing(self._folder / name):
                        self._programs.launch(name, generation)
            case "end":
                if running:
                    await running.end()
            case _:
                if running:
                    try:
                        async with asyncio.timeout(_WAIT):
                            await running.ended()
                    except TimeoutError:
                        return "false"
                return "true"
        return ""

    def _running(self) -> list[programs.Program]:
        return [one for name in self._programs.names() for one in self._programs.found(name)]


async def run(folder: Path, program: Path | None, *, yielding: bool = False) -> None:
    """Serve until this process gets SIGTERM or SIGINT.

    If several hosts share the addresses, it is `yielding`: it removes those that another host announces.
    """
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    async with Launcher(folder, program=program, yielding=yielding).serving():
        logger.info("Envoys are run in %s", folder)
        async with contextlib.AsyncExitStack() as stack:
            if yielding:
                listening = addresses.yielding(folder / hostnetwork.ADDED)
                stack.callback(asyncio.create_task(listening, name="yield addresses").cancel)
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
