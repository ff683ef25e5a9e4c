"""A killed test leaves no engine behind."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.host.docker import host as hosts
from tests.support.running import eventually, soon

_SCRIPT = """
import signal, sys
from pathlib import Path
from tests.host.docker import host as hosts
with hosts.host(Path(sys.argv[1])) as made:
    made.engine.docker("run", "--detach", hosts.IMAGE, "sleep", "infinity")
    print("up", flush=True)
    signal.pause()
"""


async def test_an_engine_ends_with_the_test_that_started_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    if reason := hosts.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("killed")  # short: there will be sockets in it
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SCRIPT, str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert child.stdout is not None
    if not await soon(child.stdout.readline()):
        _, complaint = await child.communicate()
        pytest.skip(f"no engine: {complaint.decode()[-300:]}")
    assert _of(folder)

    child.send_signal(signal.SIGKILL)

    await soon(child.wait())
    await eventually(lambda: _all_ended(folder))


async def _all_ended(folder: Path) -> bool:
    return not _of(folder)


def _of(folder: Path) -> list[str]:
    """The processes with this folder in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command and b"-c\0" not in command:
            found.append(process.name)
    return found
