"""Envoys whose files and admin sockets are in folders of this host."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bus.leases import leases
from workers.loadbalancer.envoy import bootstrap, folders, hostnetwork, resources, unixhttp
from workers.loadbalancer.envoy.attachments import Order

LOG = "envoy.log"
_LARGEST_LOG = 4 << 20


class InFolder:
    """It runs in the folder `<name>/<generation>`, and is told what to serve by files there."""

    def __init__(self, place: Path) -> None:
        self.name = place.parent.name
        self.generation = int(place.name)
        self._place = place

    async def write(self, files: Mapping[str, bytes]) -> None:
        await self._bound_log()
        await folders.write(self._place, files)

    async def read(self, file: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._place / file).read_bytes()
        return None

    async def ask(self, path: str, *, post: bool = False) -> bytes:
        return await unixhttp.request(self._place / bootstrap.ADMIN, path, post=post)

    async def route(self, routes: Mapping[str, str]) -> None:
        await hostnetwork.route(self._place.parent / "routes.json", routes)

    async def _bound_log(self) -> None:
        log = self._place / LOG
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > _LARGEST_LOG:
                log.replace(log.with_suffix(".log.1"))
                await self.ask("/reopen_logs", post=True)


class HostFolders:
    """Envoys in this host's network, each in a folder of its own: `<folder>/<name>/<generation>`."""

    folder = "."
    """Each runs in its folder, which keeps the admin socket's path short."""
    fixed_ports = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    async def beside_us(self) -> bool:
        return True

    async def kept(self, name: str) -> Mapping[str, bytes]:
        for generation in reversed(self._generations(name)):
            place = self._place(name, generation)
            files = {f.name: f.read_bytes() for kind in ("*.pb", "*.json") for f in place.glob(kind)}
            if resources.are_usable(files):
                return files
        return {}

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        return await hostnetwork.prepare(addresses, self._folder / hostnetwork.ADDED)

    async def added(self) -> Collection[str]:
        return hostnetwork.added(self._folder / hostnetwork.ADDED)

    async def remove(self, addresses: Collection[str]) -> None:
        leases.check()
        await hostnetwork.remove(addresses, self._folder / hostnetwork.ADDED)

    def _fill(self, order: Order, running: Collection[int]) -> None:
        """Write the files of a new Envoy in the place of those that have ended."""
        place = self._place(order.name, order.generation)
        leases.check()  # not below: the files of the last Envoy are removed before there are new ones
        with folders.writing(place):
            for generation in set(self._generations(order.name)) - set(running):
                shutil.rmtree(self._place(order.name, generation))
            place.mkdir(parents=True, mode=0o700)
            folders.write_now(place, order.files)

    def _place(self, name: str, generation: int) -> Path:
        return self._folder / name / str(generation)

    def _known(self) -> list[str]:
        """Names for which there are folders."""
        return sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []

    def _generations(self, name: str) -> list[int]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(int(path.name) for path in (self._folder / name).iterdir() if path.name.isdigit())
        return []
