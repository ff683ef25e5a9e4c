"""Commands of `windowbox` in processes of their own, forked from one that has imported them.

Importing takes a second of CPU, which is most of what a command takes.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from commands import cli

_CONTEXT = multiprocessing.get_context("forkserver")
_IMPORTED = (
    "doctor",
    "memberclusters",
    "sandbox",
    "balancers.lb",
    "journal.recordreplay",
    "journal.top",
    "journal.trace",
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


def _main(arguments: tuple[str, ...], environment: dict[str, str], folder: Path, out: str, err: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.argv = ["windowbox", *arguments]
    cli.main()
