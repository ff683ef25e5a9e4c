"""Lets measured processes run before others of the machine, so that figures show them alone."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from windowbox.errors import Refused

_NEEDS = "to run processes before others needs Linux, and root"


@contextlib.contextmanager
def given(pids: Iterable[int]) -> Iterator[None]:
    """Run all threads of these processes before others; needs Linux and root.

    The kernel leaves a twentieth of each second to others all the same.
    """
    if sys.platform != "linux":
        raise Refused(_NEEDS)
    processes = list(pids)
    _schedule(_threads(processes), os.SCHED_RR, 1)
    try:
        yield
    finally:
        # Threads that began meanwhile are as those that began them.
        _schedule(_threads(processes), os.SCHED_OTHER, 0)


def _threads(processes: list[int]) -> list[int]:
    return [int(one.name) for pid in processes for one in Path("/proc").glob(f"{pid}/task/*")]


def _schedule(threads: list[int], policy: int, priority: int) -> None:
    for thread in threads:
        try:
            os.sched_setscheduler(thread, policy, os.sched_param(priority))
        except ProcessLookupError:
            continue  # it has ended
        except PermissionError as error:
            raise Refused(f"{_NEEDS}: {error}") from error
