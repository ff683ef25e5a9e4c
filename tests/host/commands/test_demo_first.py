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

from sandbox import detached
from sandbox import state as states
from sandbox.programs import binaries, releases
from sandbox.programs.binaries import PROGRAMS
from tests.support import worldwithnodes
from tests.unit.sandbox import releaseserver
from tests.unit.sandbox.releaseserver import KUBERNETES, Releases, path_of

_ROOT = Path(__file__).parents[3]
_LACKING = ("kubelet", "kube-proxy", "kube-scheduler")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[tuple[dict[str, str], Releases]]:
    """The environment of a machine with servers only, which gets the other programs from a web server."""
    worldwithnodes.need()
    cache = tmp_path / "cache"
    for program in (PROGRAMS[name] for name in PROGRAMS.keys() - {*_LACKING, "named", "dig"}):
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


def test_records_are_shown_before_the_parts_with_nodes(machine: tuple[dict[str, str], Releases]) -> None:
    """Until the first Pods answer; what follows is what every other demo shows."""
    environment, _ = machine
    with _demo(environment) as demo:
        said = _until(demo, "answered by echo-")
        demo.send_signal(signal.SIGINT)
        said += demo.communicate(timeout=60)[0]
    order = [
        "Records need no nodes", "dig: 172.18.255.224", "kubelet 1.36.3: downloaded and verified",
        "Now the same sandbox with nodes", "✓ node-1/kubelet", "answered by echo-",
    ]  # fmt: skip
    places = [said.find(words) for words in order]
    assert places == sorted(places), said
    assert -1 not in places, said
    assert not re.search("left out", said, re.IGNORECASE)


def test_an_interrupted_demo_leaves_no_running_sandbox(machine: tuple[dict[str, str], Releases]) -> None:
    environment, served = machine
    served.dripping.add(path_of(PROGRAMS["kubelet"]))
    with _demo(environment) as demo:
        _until(demo, "TXT")
        demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=60)
    assert demo.returncode, said
    state = states.read(Path(environment["WINDOWBOX_HOME"]) / "default")
    assert state
    assert not state.running()
