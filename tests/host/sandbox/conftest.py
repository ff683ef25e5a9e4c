"""Sandboxes for tests: one inside the test process, and one behind the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from sandbox import stages
from sandbox.options import Options
from sandbox.supervisor import Supervisor
from tests.support import servers
from tests.support.commandline import CommandLine

SERVERS = Options(
    workers=0, patchers=0, nats_servers=3,
    companions={"beside": ("sh", "-c", 'echo "at $SANDBOX_HOST"; exec sleep infinity')},
)  # fmt: skip
"""And a watcher, which makes the streams, and a process that is not of the sandbox."""


@pytest.fixture(scope="module")
def windowbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line; what it started is ended, even if the test process is killed."""
    _need_programs()
    command_line = CommandLine(tmp_path_factory.mktemp("home"))
    with command_line.ended():
        yield command_line


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervisor]:
    """The servers of a sandbox in this process. Tests share it, and leave everything running.

    They have its event loop: `pytest.mark.asyncio(loop_scope="package")`.
    """
    _need_programs()
    async with Supervisor.running(tmp_path_factory.mktemp("sandbox") / "shared", SERVERS) as running:
        yield running


def _need_programs() -> None:
    servers.need(*stages.PROGRAMS)
