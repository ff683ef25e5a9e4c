"""Commands of `windowbox` in processes of their own, forked from one that has imported them.

Importing takes a second of CPU, which is most of what a command takes, and of the start of a role.
"""

from __future__ import annotations

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

_PR_SET_PDEATHSIG = 1
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
_CONTEXT.set_forkserver_preload([__name__, *(f"commands.{name}" for name in _IMPORTED)])


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


def _lasting(first: Callable[[], None] | None, *about: Any) -> None:
    if sys.platform == "linux":
        # The process that forks ends with that of the tests, even if that is killed.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if first:
        first()
    _main(*about)


def _main(arguments: tuple[str, ...], environment: dict[str, str], folder: Path, out: str, err: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    sys.argv = ["windowbox", *arguments]
    cli.main()
