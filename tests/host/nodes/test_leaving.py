"""Nodes leave nothing behind, however their sandbox ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import ownership, processes
from sandbox import state as states
from sandbox.options import Options
from tests.host.nodes import traces
from tests.host.nodes.traces import Traces
from tests.support import echoclient, worldwithnodes
from tests.support.commandline import CommandLine
from tests.support.worldwithnodes import NodeWorld

# Of demos with a node: commands/test_demo_first.py; of a killed supervisor: sandbox/test_detached.py.
pytestmark = pytest.mark.long

ONE_NODE = Options(watchers=0, workers=0, patchers=0, nodes=1)
KINDS = {
    "ip -oneline link", "ip netns list", "ip -4 route show table all", "ip -6 route show table all",
    "nft list tables", "mounts", "processes", "marked", "cgroups", "run",
}  # fmt: skip


@pytest.fixture
def windowbox(tmp_path: Path) -> Iterator[CommandLine]:
    """The command line, with sandboxes of the test's own."""
    worldwithnodes.need()
    command_line = CommandLine(tmp_path)
    try:
        yield command_line
    finally:
        command_line("down")


@pytest.mark.slow
def test_a_second_sandbox_coexists_and_leaves_nothing(nodes: NodeWorld, tmp_path: Path) -> None:
    service = nodes.deploy_echo("first")
    folder = tmp_path / "second"
    with worldwithnodes.opened(folder, ONE_NODE) as second:
        second.deploy_echo("second", replicas=1)
        detached = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"],
            env={**os.environ, ownership.VARIABLE: second.sandbox.state.mark}, start_new_session=True,
        )  # fmt: skip
        seen = traces.of(second.sandbox.state, folder)
        assert seen.left().keys() == KINDS
        assert not nodes.nodes[0].plan.pods_v4.overlaps(second.nodes[0].plan.pods_v4)
        assert detached.poll() is None
    assert seen.left() == {}
    assert detached.wait(60) == -signal.SIGKILL
    port = worldwithnodes.node_port(service, 8080)
    answer = echoclient.until(lambda: echoclient.tcp(nodes.nodes[0].v4, port, b"still here"))
    assert answer.said == b"still here"
    nodes.remove_echo("first")


@pytest.mark.slow
def test_down_leaves_nothing(windowbox: CommandLine) -> None:
    windowbox.up("--nodes=1")
    seen = _traces_with_a_pod(windowbox)
    assert seen.left().keys() == KINDS
    windowbox("down")
    assert seen.left() == {}


@pytest.mark.slow
def test_up_clears_leftovers_of_a_killed_supervisor(windowbox: CommandLine) -> None:
    """`down` clears it in the same way: see the tests of routes and addresses of a sandbox."""
    windowbox.up("--nodes=1")
    seen = _traces_with_a_pod(windowbox)
    windowbox.kill(60)
    assert all(processes.wait_gone(process, 60) for process in seen.inhabitants)
    reported = windowbox("doctor", expect=None)
    # A sandbox that starts meanwhile for another test clears such things away, too.
    assert f"{seen.site}-node-1" in reported or _cleared(seen)
    windowbox("up", "--watchers=0", "--workers=0", "--patchers=0", "--nodes=0")
    assert seen.left() == {}


def _traces_with_a_pod(windowbox: CommandLine) -> Traces:
    state = states.read(windowbox.folder)
    assert state
    worldwithnodes.start_shell(windowbox.folder / "operator.kubeconfig", "pod")
    return traces.of(state, windowbox.folder)


@pytest.mark.slow
def test_leftovers_of_a_killed_test_are_cleared(tmp_path: Path) -> None:
    worldwithnodes.need()
    folder = tmp_path / "sandbox"
    test = subprocess.Popen(
        [sys.executable, "-c", _TEST, str(folder), ONE_NODE.model_dump_json()],
        cwd=Path(__file__).parents[3], stdout=subprocess.PIPE,
    )  # fmt: skip
    assert test.stdout is not None
    guardian = processes.identify(int(test.stdout.readline()))
    state = states.read(folder)
    assert state
    seen = traces.of(state, folder)
    assert seen.left()
    test.kill()
    test.wait()
    assert processes.wait_gone(guardian, 60)
    assert seen.left() == {}


_TEST = """
import pathlib, signal, sys
from tests.support import worldwithnodes
from sandbox.options import Options
folder, options = pathlib.Path(sys.argv[1]), Options.model_validate_json(sys.argv[2])
with worldwithnodes.opened(folder, options) as world:
    print(world.guardian, flush=True)
    signal.pause()
"""


def _cleared(seen: Traces) -> bool:
    """Whether another sandbox is clearing all of it."""
    limit = time.monotonic() + 60
    while seen.left() and time.monotonic() < limit:
        time.sleep(0.1)  # no event says that a mount or an interface is gone
    return not seen.left()
