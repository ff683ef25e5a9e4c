"""The first `windowbox demo` on a machine that has no programs for nodes yet."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands.demo import showshoot
from sandbox import detached, stages
from sandbox import state as states
from sandbox.nodes import hostresources
from sandbox.programs import binaries, releases
from sandbox.programs.binaries import PROGRAMS
from tests.host.nodes import traces
from tests.support import servers, worldwithnodes
from tests.support.cases import cases
from tests.unit.sandbox import releaseserver
from tests.unit.sandbox.releaseserver import KUBERNETES, Releases, path_of

_ROOT = Path(__file__).parents[3]
_DEMO = {*stages.PROGRAMS, *hostresources.PROGRAMS, *showshoot.PROGRAMS}
_LACKING = ("kube-controller-manager", "kubelet", "kube-proxy", "kube-scheduler")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[tuple[dict[str, str], Releases]]:
    """The environment of a machine with servers only, which gets the other programs from a web server."""
    worldwithnodes.need()
    cache = tmp_path / "cache"
    servers.need(*_DEMO)
    for program in (PROGRAMS[name] for name in _DEMO - {*_LACKING, "named"}):
        kept = cache / "bin" / f"{program.name}-{program.version}"
        kept.mkdir(parents=True)
        (kept / program.name).symlink_to(binaries.find(program.name))
    if (openssh := binaries.cache() / "openssh").exists():
        (cache / "openssh").symlink_to(openssh)
    home = tmp_path / "home"
    with releaseserver.served() as served:
        for name in _LACKING:
            served.publish(PROGRAMS[name], binaries.find(name).read_bytes())
        try:
            yield {
                **os.environ, "WINDOWBOX_CACHE": str(cache), "WINDOWBOX_HOME": str(home),
                "no_proxy": "127.0.0.1", releases.setting("kubernetes"): served.url + KUBERNETES,
            }, served  # fmt: skip
        finally:
            detached.down(home / "default", wipe=True)


def _demo(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "windowbox", "demo", "--download"],
        cwd=_ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _until(demo: subprocess.Popen[str], words: str) -> str:
    """What it prints until these words."""
    assert demo.stdout
    said, limit = "", time.monotonic() + 170
    for line in demo.stdout:
        said += line
        assert time.monotonic() < limit, said
        if words in line:
            return said
    raise AssertionError(said)


def _interrupt(demo: subprocess.Popen[str], environment: dict[str, str], number: int = signal.SIGINT) -> str:
    """What it prints then. Nothing of it is left, and no program half made."""
    folder = Path(environment["WINDOWBOX_HOME"]) / "default"
    state = states.read(folder)
    # At first its supervisor may not have written a state.
    before = traces.of(state, folder) if state else None
    demo.send_signal(number)
    said, _ = demo.communicate(timeout=90)
    assert demo.returncode, said
    after = states.read(folder)
    assert not (after and after.running()), said
    assert not (before and before.left())
    assert [name for name in _kept(environment) if name.startswith(".")] == []
    return said


def _kept(environment: dict[str, str]) -> list[str]:
    """The programs in the cache."""
    return [path.name for path in (Path(environment["WINDOWBOX_CACHE"]) / "bin").iterdir()]


@pytest.mark.slow
def test_the_next_demo_continues_where_one_was_interrupted(
    machine: tuple[dict[str, str], Releases],
) -> None:
    """Until the first Pods answer; what follows is what every other demo shows."""
    environment, served = machine
    late = path_of(PROGRAMS["kubelet"])
    served.dripping.add(late)
    with _demo(environment) as demo:
        _until(demo, "kube-controller-manager 1.36.3: downloaded")
        _interrupt(demo, environment, signal.SIGTERM)
    assert "kubelet-1.36.3" not in _kept(environment)
    served.dripping.clear()
    served.asked.clear()
    with _demo(environment) as demo:
        said = _until(demo, "answered by echo-")
        state = states.read(Path(environment["WINDOWBOX_HOME"]) / "default")
        said += _interrupt(demo, environment)
    assert late in served.asked
    assert path_of(PROGRAMS["kube-controller-manager"]) not in served.asked
    order = [
        "What is ready is shown at once", "dig: 172.18.255.224", "stored failSwapOn: false",
        "kubelet 1.36.3: downloaded and verified", "answered by echo-",
    ]  # fmt: skip
    places = [said.find(words) for words in order]
    assert places == sorted(places), said
    assert -1 not in places, said
    assert "✓ node-1/kubelet" in said
    assert not re.search("left out", said, re.IGNORECASE)
    assert state
    restarts = {name: child.restarts for name, child in state.children.items()}
    assert (restarts["kube-controller-manager"], restarts["node-1/kubelet"]) == (0, 0)


# Above, demos are interrupted while they wait for a program, and once the first Pods answer.
@pytest.mark.long  # sandbox/test_awaited.py interrupts a start
@cases(
    "words missing",
    ("starting", "Sandbox ", "kubelet"),
    ("records", "TXT", "kubelet"),
    ("waiting-for-a-program", "kubelet 1.36.3: ", "kubelet"),
    # Its machines end with the nodes, as the Pods of the load balancer do.
    ("shoot", "node machine-", ""),
)
def test_an_interrupted_demo_leaves_nothing_behind(
    machine: tuple[dict[str, str], Releases], words: str, missing: str
) -> None:
    environment, served = machine
    if missing:
        served.dripping.add(path_of(PROGRAMS[missing]))
    with _demo(environment) as demo:
        _until(demo, words)
        _interrupt(demo, environment)
    assert ("kubelet-1.36.3" in _kept(environment)) == (not missing)
