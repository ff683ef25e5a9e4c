"""The files of an Envoy in a container, and its admin socket among them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from windowbox.clients.docker import Engine
from windowbox.errors import Refused, Unreachable
from workers.loadbalancer.envoy import bootstrap, folders, unixhttp
from workers.loadbalancer.envoy.docker.boxes import FOLDER

_LIMIT = 10.0


class Files(Protocol):
    """How the files of one container are reached."""

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Each file by a renaming, in the order given."""

    async def read(self, file: str) -> bytes | None:
        """One of them; None if it is not there."""

    async def all(self) -> Mapping[str, bytes]:
        """All of them, by name."""

    async def ask(self, path: str, *, post: bool) -> bytes:
        """Ask Envoy's admin interface."""

    def remove(self) -> None:
        """The container is gone: so are they."""


class Shared:
    """A folder of this host that the container has, too.

    The socket that Envoy makes there belongs to root, so windowbox has to be root as well.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def write(self, files: Mapping[str, bytes]) -> None:
        await folders.write(self._folder, files)

    async def read(self, file: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / file).read_bytes()
        return None

    async def all(self) -> Mapping[str, bytes]:
        with contextlib.suppress(FileNotFoundError):
            return {file.name: file.read_bytes() for file in self._folder.iterdir() if _is_one(file)}
        return {}

    async def ask(self, path: str, *, post: bool) -> bytes:
        return await unixhttp.request(self._folder / bootstrap.ADMIN, path, post=post)

    def prepare(self, files: Mapping[str, bytes]) -> None:
        """An empty folder with these files, before the container is there."""
        with folders.writing(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700, parents=True)
            for name, content in files.items():
                new = self._folder / f".new-{name}"
                with new.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())  # a host that fails leaves all of it, or nothing
                os.replace(new, self._folder / name)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds something else
            self._folder.parent.rmdir()


class Enclosed:
    """Files that only the container has: all goes through the engine, in about a tenth of a second.

    The image needs `sh`, `mv`, and a `curl` for questions.
    """

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container

    async def write(self, files: Mapping[str, bytes]) -> None:
        new = {f"{FOLDER[1:]}/.new-{name}": content for name, content in files.items()}
        await self._engine.put(self._container, "/", new)
        # What the engine unpacks it does not rename, and Envoy notices nothing else.
        moves = [f"mv -f '{FOLDER}/.new-{name}' '{FOLDER}/{name}'" for name in files]
        await self._engine.execute(self._container, ["sh", "-c", " && ".join(moves)])

    async def prepare(self, files: Mapping[str, bytes]) -> None:
        """Its first files, before it is started."""
        await self._engine.put(self._container, "/", {f"{FOLDER[1:]}/{name}": files[name] for name in files})

    async def read(self, file: str) -> bytes | None:
        return (await self._engine.files(self._container, f"{FOLDER}/{file}")).get(file)

    async def all(self) -> Mapping[str, bytes]:
        found = await self._engine.files(self._container, FOLDER)
        return {name: found[name] for name in found if not name.startswith(".")}

    async def ask(self, path: str, *, post: bool) -> bytes:
        argv = ["curl", "--silent", "--show-error", "--fail", "--max-time", str(int(_LIMIT))]
        argv += ["--unix-socket", f"{FOLDER}/{bootstrap.ADMIN}", *(["--request", "POST"] if post else [])]
        try:
            return await self._engine.execute(self._container, [*argv, f"http://envoy{path}"])
        except Refused as error:
            remedy = "an image without curl needs loadbalancer.folder, which Docker's host has to have, too"
            raise Unreachable(f"{error} ({remedy})") from error

    def remove(self) -> None:
        """They went with the container."""


def _is_one(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".")
