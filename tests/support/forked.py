"""Commands of `windowbox`, and programs of tests, in processes forked from one that has imported them.

Importing takes a second of CPU, which is most of what a command takes, and of the start of a role.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from commands import cli
from sandbox import processes

_CONTEXT = multiprocessing.get_context("forkserver")
_IMPORTED = (
    "doctor",
    "memberclusters",
    "sandbox",
    "balancers.lb",
    "journal.recordreplay",
    "journal.top",
    "journal.trace",
    "processes",
    "roles.watching",
    "roles.working",
    "roles.patching",
)
_PR_SET_PDEATHSIG = 1
_PROGRAMS = ("tests.servers.bus.programs", "tests.servers.ipam.asking")
_CONTEXT.set_forkserver_preload([__name__, *(f"commands.{name}" for name in _IMPORTED), *_PROGRAMS])


def run(
    *arguments: str, environment: Mapping[str, str], folder: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """`windowbox` with these arguments, in this environment and folder."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        about = (arguments, dict(environment), folder, out.name, err.name)
        process = _CONTEXT.Process(target=_main, args=about, daemon=True)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(["windowbox", *arguments], timeout)
        printed = [Path(file.name).read_text() for file in (out, err)]
        return subprocess.CompletedProcess(["windowbox", *arguments], process.exitcode, *printed)


@dataclass(frozen=True)
class Forked:
    """A command that runs until it is ended, or its parents are."""

    process: ForkServerProcess

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """As if the power failed."""
        self.process.kill()
        self.process.join(60)

    def end(self) -> None:
        self.process.terminate()
        self.process.join(10)
        self.kill()


def start(*arguments: str, log: Path, first: Callable[[], None] | None = None) -> Forked:
    """`windowbox` with these arguments, after a call of `first`; its output is appended to `log`."""
    log.touch()
    about = (arguments, processes.environment(), Path.cwd(), str(log), str(log))
    process = _CONTEXT.Process(target=_lasting, args=(first, *about), daemon=True)
    process.start()
    return Forked(process)


class Piped:
    """A function in a process of its own, which ends with that of the tests. Lines go in and out."""

    def __init__(self, function: Callable[..., None], *arguments: str) -> None:
        given, self._input = _CONTEXT.Pipe(duplex=False)
        self._output, taken = _CONTEXT.Pipe(duplex=False)
        about = (given, taken, function, arguments)
        self._process = _CONTEXT.Process(target=_speaking, args=about, daemon=True)
        self._ends = (given, taken)
        self.lines = asyncio.StreamReader(limit=1 << 20)

    async def start(self) -> None:
        await asyncio.to_thread(self._process.start)
        for end in self._ends:
            end.close()
        read = os.fdopen(os.dup(self._output.fileno()), "rb", buffering=0)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self.lines), read)

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    def say(self, line: bytes) -> None:
        os.write(self._input.fileno(), line + b"\n")

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.is_alive():
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        """Its exit status, once it has ended; that of a signal is negative."""
        await asyncio.to_thread(self._process.join)
        assert self._process.exitcode is not None
        return self._process.exitcode


def _speaking(given: Any, taken: Any, function: Callable[..., None], arguments: tuple[str, ...]) -> None:
    _die_with_parent()
    os.dup2(given.fileno(), 0)
    os.dup2(taken.fileno(), 1)
    for end in (given, taken):
        end.close()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    function(*arguments)


def _lasting(first: Callable[[], None] | None, *about: Any) -> None:
    _die_with_parent()
    if first:
        first()
    _main(*about)


def _die_with_parent() -> None:
    """Have Linux kill this process with the fork server, which ends with the process of the tests."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _main(arguments: tuple[str, ...], environment: dict[str, str], folder: Path, out: str, err: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    sys.argv = ["windowbox", *arguments]
    cli.main()
