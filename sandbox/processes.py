"""Processes and ports of this machine: identity, ending with the parent, free ports."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_SETPRIV = ("setpriv", "--pdeathsig", "KILL", "--")
_UNLESS_ORPHANED = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'
"""Executes its arguments, unless the parent ended before the kernel was asked."""
_PORTS = range(25600, 30000)
"""Below the ports that the system assigns to clients, and to servers without a fixed port."""
_LAST_PORT = Path(tempfile.gettempdir()) / f"windowbox-{os.getuid()}.port"
"""Ports are allocated in turn: a port stays free until its server starts, and must not be allocated twice."""


@dataclass(frozen=True)
class ProcessId:
    """A process: its PID and start time, since PIDs are reused."""

    pid: int
    started: str


def environment() -> dict[str, str]:
    """Our environment for a child, without proxies: all that it connects to is on this machine."""
    return {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}


def started(pid: int) -> str | None:
    """When `pid` started, in the system's own unit; None if it is not running."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # A zombie has ended; its parent has not reaped it yet.
        return None if fields[0] in "ZX" else fields[19]
    answer = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    )
    return answer.stdout.strip() or None


def identify(pid: int) -> ProcessId:
    return ProcessId(pid, started(pid) or "ended")


def alive(process: ProcessId) -> bool:
    """Whether this process still runs; another one with its PID does not count."""
    return started(process.pid) == process.started


def end(process: ProcessId, *, patience: float = 10) -> bool:
    """End this process by SIGTERM, after a timeout by SIGKILL. False if it had ended already."""
    if not _send(process, signal.SIGTERM):
        return False
    if not wait_gone(process, patience):
        _send(process, signal.SIGKILL)
        wait_gone(process, patience)
    return True


def wait_gone(process: ProcessId, patience: float = 10) -> bool:
    """Wait until this process has ended; False on a timeout."""
    # Only a parent can wait for a process; others have to poll.
    limit = time.monotonic() + patience
    while alive(process):
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def only_child(pid: int) -> int | None:
    """The child of the process `pid`, on Linux; None if it has none, or several."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(found[0]) if len(found) == 1 else None


def dying_with_parent(argv: Sequence[str]) -> list[str]:
    """This command as one that receives SIGKILL when the caller ends, where `setpriv` can ask the kernel.

    The kernel means the thread that starts the child, not the process: start children from a thread that
    stays. A `preexec_fn` could ask, too. But it costs more than these two programs, and Python that runs
    between fork and exec may crash or wait for ever: other threads are gone there, their locks are not.
    """
    if not _setpriv_can_ask():
        return list(argv)
    return [*_SETPRIV, "/bin/sh", "-c", _UNLESS_ORPHANED, "sh", str(os.getpid()), *argv]


@functools.cache
def _setpriv_can_ask() -> bool:
    """Whether `setpriv` is that of util-linux: BusyBox's has no such option, and other systems have none."""
    if not shutil.which(_SETPRIV[0]):
        return False
    return subprocess.run([*_SETPRIV, "true"], capture_output=True, timeout=10, check=False).returncode == 0


def python_environment() -> dict[str, str]:
    """Variables of a child that runs modules of this checkout, or of this installation."""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def start(argv: list[str], log: Path, *, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process and appends its output to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            dying_with_parent(argv), env={**environment(), **(env or {})},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip


def free_port() -> int:
    """A free port of 127.0.0.1, which is not allocated again soon."""
    for _ in _PORTS:
        if is_free(port := _next_port()):
            return port
    raise OSError(errno.EADDRINUSE, "no port is free", f"{_PORTS.start} to {_PORTS.stop - 1}")


def _next_port() -> int:
    """The port after the last one that any process of this user was given."""
    try:
        file = os.open(_LAST_PORT, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:  # another user created it
        return random.choice(_PORTS)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = os.read(file, 16)
        last = int(text) if text.isdigit() else random.choice(_PORTS)
        port = last + 1 if last + 1 in _PORTS else _PORTS.start
        os.ftruncate(file, 0)
        os.pwrite(file, str(port).encode(), 0)
        return port
    finally:
        os.close(file)


def is_free(port: int) -> bool:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        # As servers do: connections in TIME_WAIT do not occupy a port.
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def accepts(port: int) -> bool:
    """Whether a server on 127.0.0.1 accepts connections at this port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _send(process: ProcessId, number: signal.Signals) -> bool:
    if not alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Have SIGTERM end this process as Ctrl-C does, so that what was started meanwhile ends with it."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
