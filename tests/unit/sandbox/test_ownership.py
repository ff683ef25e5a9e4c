"""The sandbox of a detached process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sandbox import ownership, processes
from sandbox.nodes import leftovers
from sandbox.processes import ProcessId
from tests.support.cases import cases

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def dead() -> ProcessId:
    """A process that has ended."""
    process = subprocess.Popen(["sleep", "600"])
    found = processes.identify(process.pid)
    process.kill()
    process.wait()
    return found


@pytest.fixture
def living() -> ProcessId:
    return processes.identify(os.getpid())


def test_orphans_of_a_killed_supervisor_are_ended(dead: ProcessId) -> None:
    orphan = _marked(ownership.new_mark(dead))
    assert processes.identify(orphan.pid) in ownership.orphans()
    assert f"cat ({orphan.pid})" in leftovers.clear()
    assert orphan.wait(10) == -9


def test_a_process_whose_supervisor_lives_is_left_alone(living: ProcessId) -> None:
    mark = ownership.new_mark(living)
    process = _marked(mark)
    found = processes.identify(process.pid)
    assert found not in ownership.orphans()
    assert ownership.end(ownership.new_mark(living)) == []
    assert ownership.end(mark) == [found]
    assert process.wait(10) == -9


@cases("mark", ("other-process-numbers", "1.1.1.abc"), ("not-a-mark", "nonsense"), ("empty", ""))
def test_strange_marks_name_no_owner(mark: str) -> None:
    assert ownership.owner(mark) is None


def _marked(mark: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, ownership.VARIABLE: mark},
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"?")
    process.stdin.flush()
    # Popen returns a moment before the system shows the mark; a process that answers has begun.
    assert process.stdout.read(1) == b"?"
    return process
