"""Children that cannot run while something else is missing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from sandbox.children import Child
from sandbox.restarter import Restarter
from tests.support.running import eventually, running


async def test_a_held_child_waits_and_its_end_is_no_crash(tmp_path: Path) -> None:
    off, starts, asked = tmp_path / "off", tmp_path / "starts", list[bool]()

    def held() -> bool:
        asked.append(off.exists())
        return asked[-1]

    async def was_asked() -> bool:
        return len(asked) > 2

    async def is_waiting() -> bool:
        return restarter.state.condition == "waiting"

    async def started(times: int) -> bool:
        # The child may be quicker than what notes its pid.
        there = starts.exists() and starts.read_text() == "start\n" * times
        return there and restarter.state.pid is not None

    child = Child(
        "child", ["sh", "-c", 'echo start >> "$0"; exec sleep 600', str(starts)], starts.exists, held=held
    )
    restarter = Restarter(child, tmp_path / "log", lambda: None)
    off.touch()
    async with running(restarter.run()):
        restarter.start()
        await eventually(was_asked)
        assert not starts.exists()
        off.unlink()
        await eventually(lambda: started(1))
        off.touch()
        _kill(restarter)
        await eventually(is_waiting)
        assert (restarter.state.restarts, starts.read_text()) == (0, "start\n")
        off.unlink()
        await eventually(lambda: started(2))
        _kill(restarter)
        await eventually(lambda: started(3))
        assert restarter.state.restarts == 1
        await restarter.stop()


async def test_a_held_child_can_be_stopped(tmp_path: Path) -> None:
    child = Child("child", ["sleep", "600"], ready=lambda: True, held=lambda: True)
    restarter = Restarter(child, tmp_path / "log", lambda: None)
    async with running(restarter.run()):
        restarter.start()
        await restarter.stop()
        assert restarter.state.condition == "stopped"


def _kill(restarter: Restarter) -> None:
    assert restarter.state.pid
    os.kill(restarter.state.pid, signal.SIGKILL)
