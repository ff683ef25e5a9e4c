"""The CPU weight of the cgroup that holds containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.nodes import cgroups
from tests.support.cases import cases

_NOWHERE = "4:memory:/some\n2:cpuacct:/other\n1:cpu:/\n0::/\n"
_V2 = "0::/\n"


def _root(folder: Path, version: int, weight: str) -> tuple[Path, Path]:
    """A tree of cgroups with files as the kernel makes them, and the file of the weight."""
    parent = folder / "cpu" if version == 1 else folder
    file = parent / "k8s.io" / ("cpu.shares" if version == 1 else "cpu.weight")
    file.parent.mkdir(parents=True)
    (parent / "cgroup.procs").touch()
    file.write_text(weight)
    return folder, file


@cases(
    "version own weight expected",
    ("v1", 1, _NOWHERE, "1024\n", "16384"),
    ("v2", 2, _V2, "100\n", "1600"),
    ("set by hand", 1, _NOWHERE, "512\n", "512\n"),
    ("set by hand, v2", 2, _V2, "300\n", "300\n"),
    ("beside a slice", 1, "4:cpu,cpuacct:/user.slice\n0::/\n", "1024\n", "1024\n"),
    ("beside a slice, v2", 2, "0::/user.slice/user-0.slice\n", "100\n", "100\n"),
)
def test_containers_weigh_as_many_processes_beside_single_ones(
    version: int, own: str, weight: str, expected: str, tmp_path: Path
) -> None:
    root, file = _root(tmp_path / "cgroup", version, weight)
    groups = tmp_path / "own"
    groups.write_text(own)
    cgroups.weigh(root, groups)
    assert file.read_text() == expected


@pytest.mark.parametrize("last", [True, False])
def test_the_last_sandbox_removes_the_group_of_all(tmp_path: Path, last: bool) -> None:
    """Another may have no containers at the moment, whose weight would be lost."""
    containers, parent = tmp_path / "containers", tmp_path / "cgroup" / "k8s.io"
    for folder in (containers / "some", parent / "some" / "inner"):
        folder.mkdir(parents=True)
    cgroups.remove(containers, last=last, root=parent.parent)
    assert not (parent / "some").exists()
    assert parent.exists() is not last


def test_a_machine_without_weights_is_left_alone(tmp_path: Path) -> None:
    groups = tmp_path / "own"
    groups.write_text(_V2)
    (tmp_path / "cgroup.procs").touch()
    cgroups.weigh(tmp_path, groups)
    assert not (tmp_path / "k8s.io" / "cpu.weight").exists()
