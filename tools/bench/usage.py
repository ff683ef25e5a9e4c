"""CPU time, memory and precedence of processes, from the kernel."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from windowbox.errors import Refused

_TICKS = os.sysconf("SC_CLK_TCK")
_NEEDS = "to run processes before others needs Linux, and root"


class Usage(NamedTuple):
    """CPU time and memory of one process since its start."""

    cpu: float
    """Seconds."""
    peak: float
    """The most memory that it had, in MiB."""
    started: int = 0
    """When it started, in the kernel's own unit."""


def usage(pid: int) -> Usage:
    """The usage of the process `pid`; zero if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return Usage(0.0, 0.0)
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    return Usage(cpu, int(peak.split()[1]) / 1024, int(fields[19]))


def private(pid: int) -> float:
    """Private memory of this process, in MB; zero if it has ended."""
    # Pages of a program are shared by all processes that run it: only private ones are a cost of this one.
    return _memory(pid, "Private_")


def resident(pid: int) -> float:
    """Memory of this process with the pages that it shares with others, in MB; zero if it has ended."""
    return _memory(pid, "Rss:")


def proportional(pid: int) -> float:
    """Memory of this process, in MB, where a page that it shares counts by parts; zero if it has ended."""
    return _memory(pid, "Pss:")


def files(pid: int) -> float:
    """Memory of this process that are pages of files, in MB; zero if it has ended."""
    return resident(pid) - _memory(pid, "Anonymous:")


def _memory(pid: int, fields: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(fields)) * 1024 / 1e6


def _machine() -> float:
    """CPU seconds of all processes of this machine since its start."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    # The last two fields are those of guests, which `user` and `nice` include.
    return (sum(map(int, fields[:8])) - idle) / _TICKS


@dataclass(frozen=True)
class Reading:
    """The CPU that processes used in one interval."""

    seconds: float
    """Length of the interval."""
    cpu: Mapping[str, float]
    """CPU seconds of each process."""
    elsewhere_percent: float
    """How much of the machine all other processes used."""

    @property
    def percent(self) -> dict[str, float]:
        """CPU of each process, in percent of one core."""
        return {name: round(100 * cpu / self.seconds, 2) for name, cpu in self.cpu.items()}


class Meter:
    """Measures an interval that begins now, with the usage of the processes of interest at both ends."""

    def __init__(self, usages: Mapping[str, Usage]) -> None:
        # The kernel counts in ticks of 10 ms: intervals should be much longer.
        self._before, self._machine, self._started = usages, _machine(), time.perf_counter()

    def read(self, usages: Mapping[str, Usage]) -> Reading:
        seconds, cpu = time.perf_counter() - self._started, dict[str, float]()
        for name, used in usages.items():
            before = self._before.get(name, Usage(0.0, 0.0))
            # The counter of a restarted process began at zero.
            cpu[name] = used.cpu - (before.cpu if before.started == used.started else 0.0)
        others = _machine() - self._machine - sum(cpu.values())
        return Reading(seconds, cpu, round(100 * others / seconds / (os.cpu_count() or 1), 1))


@contextlib.contextmanager
def running_first(pids: Iterable[int]) -> Iterator[None]:
    """Run all threads of these processes before those of other processes; needs Linux and root.

    The kernel leaves a twentieth of each second to others all the same.
    """
    if sys.platform != "linux":
        raise Refused(_NEEDS)
    processes = list(pids)

    def schedule(policy: int, priority: int) -> None:
        for thread in [path.name for pid in processes for path in Path("/proc").glob(f"{pid}/task/*")]:
            try:
                os.sched_setscheduler(int(thread), policy, os.sched_param(priority))
            except ProcessLookupError:
                continue  # it has ended
            except PermissionError as error:
                raise Refused(f"{_NEEDS}: {error}") from error

    # The lowest real-time priority is above every process that is not real-time.
    schedule(os.SCHED_RR, 1)
    try:
        yield
    finally:
        # Threads inherit the policy of the thread that starts them: also reset those started meanwhile.
        schedule(os.SCHED_OTHER, 0)
