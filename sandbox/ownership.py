"""The sandbox of each process, including detached ones.

Every child inherits an environment variable (the mark) naming the sandbox's supervisor. So a process that a
child detached, such as an Envoy that survives its worker, is found when the supervisor ends or was killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from pathlib import Path

from sandbox import processes
from sandbox.processes import ProcessId

VARIABLE = "WINDOWBOX_SANDBOX_ID"


def new_mark(supervisor: ProcessId) -> str:
    """A mark for the children of one supervisor. One process may run several supervisors."""
    # PIDs are valid in one PID namespace only: a host that sees into a container must not use them.
    return f"{_pid_namespace()}.{supervisor.pid}.{supervisor.started}.{secrets.token_hex(4)}"


def owner(mark: str) -> ProcessId | None:
    """The supervisor's process, running or ended; None if it is in another PID namespace."""
    namespace, _, rest = mark.partition(".")
    pid, _, rest = rest.partition(".")
    if namespace != _pid_namespace() or not pid.isdecimal():
        return None
    return ProcessId(int(pid), rest.rpartition(".")[0])


def marked() -> dict[ProcessId, str]:
    """All processes of this machine with a mark of a sandbox."""
    if sys.platform != "linux":
        return {}
    # The kernel shows the environment as it was at the start of a process: unsetting it removes no mark.
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    return {processes.identify(pid): mark for pid in pids if (mark := _mark_of(pid))}


def orphans() -> list[ProcessId]:
    """Processes whose supervisor has ended."""
    owned = [(process, owner(mark)) for process, mark in marked().items()]
    return [process for process, supervisor in owned if supervisor and not processes.alive(supervisor)]


def end(mark: str) -> list[ProcessId]:
    """Send SIGKILL to every process with the mark, and wait until they have ended."""
    return end_all([process for process, found in marked().items() if found == mark])


def end_all(found: list[ProcessId]) -> list[ProcessId]:
    """Send SIGKILL to these processes, and wait until they have ended."""
    for process in found:
        if processes.alive(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    for process in found:
        processes.wait_gone(process)
    return found


def name_of(process: ProcessId) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except OSError:
        return "ended"


def _mark_of(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # ended meanwhile, or another user's
        return None
    name = VARIABLE.encode() + b"="
    return next((v[len(name) :].decode() for v in variables if v.startswith(name)), None)


def _pid_namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"
