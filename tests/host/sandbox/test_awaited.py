"""A sandbox starts before all of its programs are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import detached, stages
from sandbox import state as states
from sandbox.nodes import hostresources
from sandbox.programs import binaries
from sandbox.programs.binaries import PROGRAMS
from tests.support import servers

LATE = "kube-controller-manager"
SERVERS_ONLY = {"watchers": 0, "workers": 0, "patchers": 0, "awaited": (LATE,)}


def put(program: str, source: Path, cache: Path) -> None:
    """Have the cache contain a program, from one moment to the next."""
    folder = cache / "bin" / f"{program}-{PROGRAMS[program].version}"
    folder.mkdir(parents=True)
    (folder / program).symlink_to(source)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Where this machine has all programs, while the cache lacks one."""
    servers.need(*stages.PROGRAMS)
    names = [name for name in (*stages.PROGRAMS, *hostresources.PROGRAMS) if not servers.missing(name)]
    found = {name: binaries.find(name) for name in names}
    monkeypatch.setenv("WINDOWBOX_CACHE", str(tmp_path))
    for name in set(stages.PROGRAMS) - {LATE, "named"}:
        put(name, found[name], tmp_path)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home" / "awaited"
    yield folder
    detached.down(folder, wipe=True)


@pytest.mark.long  # host/commands/test_demo_first.py shows a sandbox that waits for programs, and its nodes
def test_a_process_starts_once_its_program_is_there(
    folder: Path, sources: dict[str, Path], tmp_path: Path
) -> None:
    state = detached.up(folder, SERVERS_ONLY)
    assert state.children["kube-apiserver"].condition == "ready"
    assert state.children[LATE].condition == "waiting"
    assert not state.ready
    put(LATE, sources[LATE], tmp_path)
    later = detached.up(folder, {})
    assert later.children[LATE].condition == "ready"
    assert later.children[LATE].restarts == 0
    assert later.pid == state.pid


@pytest.mark.long  # as above
def test_nodes_start_once_their_programs_are_there(
    folder: Path, sources: dict[str, Path], tmp_path: Path
) -> None:
    late = hostresources.PROGRAMS
    if reason := hostresources.impossible() or ", ".join(set(late) - sources.keys()):
        pytest.skip(f"no nodes: {reason}")
    state = detached.up(folder, {**SERVERS_ONLY, "nodes": 1, "awaited": (LATE, *late)})
    assert state.children["kube-apiserver"].condition == "ready"
    for process in ("containerd", "kubelet", "kube-proxy"):
        assert state.children[f"node-1/{process}"].condition == "waiting"
    # A kube-proxy alone would wait for its Node, and crash.
    for name in ("kube-proxy", "windowbox-echo"):
        put(name, sources[name], tmp_path)
    state = detached.up(folder, {})
    assert state.children["node-1/containerd"].condition == "ready"
    assert state.children["node-1/kube-proxy"].condition == "waiting"
    for name in {LATE, *late} - {"kube-proxy", "windowbox-echo"}:
        put(name, sources[name], tmp_path)
    later = detached.up(folder, {})
    assert later.ready
    assert later.children["node-1/kubelet"].restarts == 0


def test_a_start_that_is_interrupted_at_once_leaves_no_supervisor(
    folder: Path, sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the supervisor has written its state, nobody else could find it."""
    started = []

    def interrupted(_: Path) -> None:
        supervisor = started_here()
        if supervisor:
            started.append(supervisor)
            raise KeyboardInterrupt

    def started_here() -> str:
        marked = f"{folder.absolute()}".encode()
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = line.read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            if b"sandbox.supervisor" in words and marked in words:
                return line.parent.name
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(states, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            detached.up(folder, SERVERS_ONLY)
    assert started
    assert not started_here()
