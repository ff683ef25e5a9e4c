"""Reads what a machine has left: memory, disks, CPUs, inotify instances."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from sandbox.forecast.facts import Place, Purpose

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


def cpus() -> int:
    """Those that this process may use, and a container's quota of them."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        found = min(found, max(1, int(quota) // int(period)))
    return found


def memory() -> int:
    """Available bytes, also within the limit of a container."""
    if sys.platform != "linux":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lines = _read(Path("/proc/meminfo")).splitlines()
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most, taken = _read(_CGROUP / limit).strip(), _read(_CGROUP / used).strip()
        if most.isdecimal() and taken.isdecimal() and int(most) < _UNLIMITED:
            free = min(free, int(most) - int(taken))
    return free


def place(purpose: Purpose, folder: Path) -> Place:
    """A folder, which need not exist, and its disk."""
    there = existing(folder)
    return Place(
        purpose, str(folder), shutil.disk_usage(there).free, there.stat().st_dev, os.access(there, os.W_OK)
    )


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    folder = folder.absolute()
    return next(one for one in (folder, *folder.parents) if one.exists())


def build_folders() -> list[Path]:
    """Where Go keeps what it has compiled, and the modules that it has fetched."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    path = Path(os.environ.get("GOPATH") or Path.home() / "go")
    return [
        Path(os.environ.get("GOCACHE") or cache / "go-build"),
        Path(os.environ.get("GOMODCACHE") or path / "pkg" / "mod"),
    ]


def inotify_free() -> int:
    """How many inotify instances this user may still make."""
    most, used = int(_read(Path("/proc/sys/fs/inotify/max_user_instances"))), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.geteuid():
                used += sum("inotify" in os.readlink(file) for file in os.scandir(process / "fd"))
        except OSError:
            continue  # it has ended, or is another's
    return most - used


def container() -> str:
    """The kind of the container around this process; empty if there is none."""
    if Path("/.dockerenv").exists():
        return "Docker"
    if Path("/run/.containerenv").exists():
        return "Podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "Kubernetes"
    return os.environ.get("container", "")  # noqa: SIM112 - of systemd


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
