"""CPU time and memory of processes, from the kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """CPU time and memory of one process since its start."""

    cpu: float
    """Seconds."""
    peak: float
    """MiB of memory at the worst moment."""


def usage(pid: int) -> Usage:
    """The usage of the process `pid`; zero if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return Usage(0.0, 0.0)
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, int(peak.split()[1]) / 1024)


def private(pid: int) -> float:
    """Private memory of this process, in MB; zero if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024 / 1e6


def machine() -> float:
    """CPU seconds of all processes of this machine since its start."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / _TICKS
