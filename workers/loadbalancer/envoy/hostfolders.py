"""Envoys whose files and admin sockets are in folders of this host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import aiohttp
import orjson

from bus.leases import leases
from bus.transport import finishing
from windowbox.errors import Refused, Unreachable
from workers.loadbalancer.envoy import bootstrap
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.launcher import programs
from workers.loadbalancer.links import hostnetwork
from workers.loadbalancer.links.addresses import Links

DISCOVERY = "discovery"
"""The folder of the socket from which all Envoys get their resources."""
SOCKET = "ads.sock"
_LARGEST_LOG = 4 << 20
_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
_LONGEST_PATH = 100
"""Characters of a Unix socket's path: `sun_path` holds 108 bytes on Linux and 104 on macOS."""


async def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files in a thread: on a busy disk, a rename takes more than a second.

    Cancelling does not stop the thread, so it is always awaited: it could overwrite the next write's files.
    """

    def write_as_owner() -> None:
        for name, content in files.items():
            leases.check()  # files that a successor wrote are newer
            write_now(folder, {name: content})

    await finishing.to_end(asyncio.to_thread(write_as_owner))


def write_now(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, in the order given."""
    with programs.writing(folder):
        for name, content in files.items():
            temporary = folder / f".{name}.new"
            temporary.write_bytes(content)
            os.replace(temporary, folder / name)


async def ask(socket: Path, target: str, *, post: bool = False) -> bytes:
    """The body of an HTTP response over a Unix socket. Unreachable without one, Refused if it is an error."""
    what = f"ask {socket} for {target}"
    try:
        with short(socket) as path:
            # A connection that is kept could be closed just when the next request uses it.
            connector = aiohttp.UnixConnector(path, force_close=True)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session,
                session.request("POST" if post else "GET", f"http://envoy{target}") as response,
            ):
                body = await response.read()
    except (OSError, TimeoutError, ValueError, aiohttp.ClientError) as error:
        raise Unreachable(f"{what}: {str(error) or 'no answer in time'}") from error
    if response.status != 200:
        raise Refused(f"{what}: {body.decode(errors='replace').strip()}")
    return body


@contextlib.contextmanager
def short(socket: Path) -> Iterator[str]:
    """A path of the socket that fits into a socket address."""
    if len(str(socket)) <= _LONGEST_PATH or sys.platform != "linux":
        yield str(socket)
        return
    folder = os.open(socket.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{socket.name}"
    finally:
        os.close(folder)


def newest_owners(places: Iterable[Path]) -> bytes | None:
    """The first file of owners in these folders that is whole: a crash of the host may damage one."""
    for place in places:
        with contextlib.suppress(FileNotFoundError, ValueError):
            file = (place / bootstrap.OWNERS).read_bytes()
            orjson.loads(file)
            return file
    return None


class EnvoyFolder:
    """The files of one Envoy, and its admin socket beside them."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def write(self, files: Mapping[str, bytes]) -> None:
        await write(self._place, files)

    async def read(self, file: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._place / file).read_bytes()
        return None

    async def ask(self, path: str, *, post: bool = False) -> bytes:
        return await ask(self._place / bootstrap.ADMIN, path, post=post)


class InFolder(EnvoyFolder):
    """An Envoy that runs in the folder `<name>/<generation>`."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.name = place.parent.name
        self.generation = int(place.name)

    async def write(self, files: Mapping[str, bytes]) -> None:
        log = self._place / programs.LOG
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > _LARGEST_LOG:
                log.replace(log.with_suffix(".log.1"))
                await self.ask("/reopen_logs", post=True)
        await super().write(files)

    async def route(self, routes: Mapping[str, str]) -> None:
        await hostnetwork.route(self._place.parent / "routes.json", routes)


class _Network(Protocol):
    """Adds addresses to the links of this host, or to its loopback interface, and records them."""

    async def prepare(self, addresses: Sequence[str], record: Path) -> dict[str, str]: ...

    async def remove(self, addresses: Collection[str], record: Path) -> None: ...


class HostFolders:
    """Envoys in this host's network, each in a folder of its own: `<folder>/<name>/<generation>`."""

    folder = programs.FOLDER
    discovery = f"../../{DISCOVERY}/{SOCKET}"
    fixed_ports = False

    def __init__(self, folder: Path, *, links: Links | None = None) -> None:
        self._folder = folder.absolute()
        self._record = self._folder / hostnetwork.ADDED
        self._network: _Network = links or hostnetwork

    async def beside_us(self) -> bool:
        return True

    @property
    def discovery_folder(self) -> Path:
        return self._folder / DISCOVERY

    async def owners(self, name: str) -> bytes | None:
        generations = reversed(programs.generations(self._folder / name))
        return newest_owners(self._place(name, generation) for generation in generations)

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        return await self._network.prepare(addresses, self._record)

    async def added(self) -> Collection[str]:
        return hostnetwork.added(self._record)

    async def remove(self, addresses: Collection[str]) -> None:
        leases.check()
        await self._network.remove(addresses, self._record)

    def _fill(self, order: Order, running: Collection[int]) -> None:
        """Replace the folders of ended Envoys by one with the files of a new Envoy."""
        place = self._place(order.name, order.generation)
        # Checked once, before the last Envoy's files are removed: half of the new ones would be useless.
        leases.check()
        with programs.writing(place):
            for generation in set(programs.generations(self._folder / order.name)) - set(running):
                shutil.rmtree(self._place(order.name, generation))
            place.mkdir(parents=True, mode=0o700)
            write_now(place, order.files)

    def _place(self, name: str, generation: int) -> Path:
        return self._folder / name / str(generation)
