"""A NATS server that can be stopped, and started again with or without its store."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from bus import streams
from bus.transport.connection import Bus
from sandbox import processes
from tests.support import servers
from tests.support.running import eventually
from windowbox.errors import WindowboxError


class Startable(Protocol):
    """A server, or several, that keep their addresses when they are stopped, emptied and started again."""

    _folder: Path

    def start(self) -> None: ...
    def stop(self) -> None: ...

    @property
    def store(self) -> Path:
        """The folder of its files."""
        return self._folder

    def restart(self) -> None:
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Stop, and forget everything."""
        self.stop()
        shutil.rmtree(self._folder)


class NatsServer(Startable):
    def __init__(self, folder: Path, *options: str) -> None:
        self.port = processes.free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._folder = folder
        self._options = options
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        server = servers.nats_server(self._folder, port=self.port, options=self._options)
        self._running.enter_context(server)

    def stop(self) -> None:
        self._running.close()


_Server = TypeVar("_Server", bound=Startable)


@contextlib.contextmanager
def started(server: _Server) -> Iterator[_Server]:
    """Run a server, or a cluster, as long as the body lasts."""
    server.start()
    try:
        yield server
    finally:
        server.stop()


async def ensured(bus: Bus) -> list[str]:
    """The streams as this bus can have them: on all of its servers."""
    return await streams.ensure(bus, 3 if bus.clustered else 1)


async def made_anew(bus: Bus) -> bool:
    """Whether the streams had to be made, as watchers do when the server comes back without its memory."""
    try:
        return bool(await ensured(bus))
    except WindowboxError:
        return False


async def emptied(server: Startable, bus: Bus) -> None:
    """Have a server come back without its memory, and the streams made anew."""
    server.wipe()
    server.start()
    await eventually(lambda: made_anew(bus))


def port_of(url: str) -> int:
    """The port of the first server of a bus."""
    port = urlsplit(url.split(",")[0]).port
    assert port
    return port
