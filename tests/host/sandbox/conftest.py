"""Sandboxes for tests: one inside the test process, and one behind the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import servers
from windowbox.sandbox import stages
from windowbox.sandbox.options import Options
from windowbox.sandbox.supervisor import Supervisor

ROOT = Path(__file__).parents[3]
SERVERS_ONLY = Options(watchers=0, workers=0, patchers=0, audit=True)


class CommandLine:
    """`windowbox` with its sandboxes in a folder of the test's own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "default"

    def __call__(self, *arguments: str, expect: int | None = 0, **environment: str) -> str:
        """What the command printed; its errors, if it was expected to fail, or to do either."""
        answer = subprocess.run(
            [sys.executable, "-m", "windowbox", *arguments],
            env={**self.environment(), **environment}, cwd=ROOT,
            capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        assert expect is None or answer.returncode == expect, answer.stdout + answer.stderr
        return answer.stdout if expect == 0 else answer.stdout + answer.stderr

    def up(self, *more: str) -> str:
        return self("up", "--watchers=0", "--workers=0", "--patchers=0", "--nodes=0", *more)

    def environment(self) -> dict[str, str]:
        known = {key: value for key, value in os.environ.items() if not key.startswith("WINDOWBOX_S")}
        return {**known, "WINDOWBOX_HOME": str(self.home)}


@pytest.fixture(scope="module")
def windowbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line; what it started is ended, even if the test process is killed."""
    _need_programs()
    command_line = CommandLine(tmp_path_factory.mktemp("home"))
    # Reads until our end of the pipe is closed, which the kernel does for us if nobody else can.
    guardian = subprocess.Popen(
        ["sh", "-c", 'cat >/dev/null; exec "$0" -m windowbox down', sys.executable],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT,
        env=command_line.environment(), start_new_session=True,
    )  # fmt: skip
    try:
        yield command_line
    finally:
        assert guardian.stdin is not None
        guardian.stdin.close()
        guardian.wait(120)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervisor]:
    """The servers of a sandbox in this process. Tests share it, and leave everything running."""
    _need_programs()
    async with Supervisor.running(tmp_path_factory.mktemp("sandbox") / "shared", SERVERS_ONLY) as running:
        yield running


def _need_programs() -> None:
    if reason := servers.missing(*stages.PROGRAMS):
        pytest.skip(reason)
