"""Removes cgroups of containers that were ended without their runtime."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PARENT = "k8s.io"


def remove(containers: Path) -> None:
    """Remove the empty groups of all containers that have a folder in `containers`."""
    if not containers.exists():
        return
    names = os.listdir(containers)
    for parent in (_ROOT / _PARENT, *_ROOT.glob(f"*/{_PARENT}")):
        for name in names:
            _remove(parent / name)
        with contextlib.suppress(OSError):  # it also holds cgroups of other sandboxes
            parent.rmdir()


def _remove(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
