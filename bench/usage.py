"""What processes have used so far: CPU time and memory, as the kernel counts them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """What one process has used since it began."""

    cpu: float
    """Seconds."""
    peak: float
    """MiB of memory at the worst moment."""


def usage(pid: int) -> Usage:
    """What the process `pid` has used. Of one that has ended: nothing."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return Usage(0.0, 0.0)
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, int(peak.split()[1]) / 1024)


def private(pid: int) -> float:
    """Memory that only this process has, in MB. Of one that has ended: nothing."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024 / 1e6


def machine() -> float:
    """Seconds of CPU that all processes of this machine have used since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / _TICKS
