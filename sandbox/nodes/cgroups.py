"""The cgroup that holds those of all containers: its CPU weight, and the removal of what is left in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PARENT = "k8s.io"
"""The containers of all sandboxes of this machine."""
_OWN = Path("/proc/self/cgroup")
_PROCESSES = 16
"""The containers together get as much CPU as so many processes outside."""
_NEW = {"cpu.shares": 1024, "cpu.weight": 100}
"""The weight of a new cgroup and of each process in none, in cgroups v1 and v2."""


def weigh(root: Path = _ROOT, own: Path = _OWN) -> None:
    """Give containers the CPU of many processes, where their cgroup competes with single ones.

    That is so if this process is in no cgroup, as in most containers and virtual machines for CI: there, all
    containers together weigh as much as one process. Beside the cgroups of systemd, they weigh as much as a
    whole session, and keep that weight. A weight that differs from the default is kept, too.
    """
    lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    # The groups of the CPU controller in version 1, and those of version 2, which name no controller.
    if any(group != "/" for _, names, group in lines if not names or "cpu" in names.split(",")):
        return
    for folder, name in ((root / "cpu", "cpu.shares"), (root, "cpu.weight")):
        if (folder / "cgroup.procs").exists():
            with contextlib.suppress(OSError):  # cgroups are read-only in some containers
                (folder / _PARENT).mkdir(exist_ok=True)
                if name == "cpu.weight":
                    # As runc does for the first container.
                    (folder / "cgroup.subtree_control").write_text("+cpu")
                weight = folder / _PARENT / name
                if int(weight.read_text()) == _NEW[name]:
                    weight.write_text(str(_PROCESSES * _NEW[name]))


def remove(containers: Path, *, last: bool, root: Path = _ROOT) -> None:
    """Remove the empty groups of all containers that have a folder in `containers`.

    The parent goes with the last sandbox: another one, which has no container yet, has given it its weight.
    """
    if not containers.exists():
        return
    names = os.listdir(containers)
    for parent in (root / _PARENT, *root.glob(f"*/{_PARENT}")):
        for name in names:
            group = parent / name
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        if last:
            with contextlib.suppress(OSError):  # another sandbox has just started a container
                parent.rmdir()
