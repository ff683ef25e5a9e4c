"""Clears what a test leaves in the system if it is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def guarded(module: str = "sandbox.nodes.leftovers", *arguments: str) -> AbstractContextManager[int]:
    """Run this module when we end, however we do: by default, it removes our nodes and networks."""
    return afterwards(sys.executable, "-m", module, *arguments)


@contextlib.contextmanager
def afterwards(
    *command: str, cwd: Path = _ROOT, env: Mapping[str, str] | None = None, patience: float = 60
) -> Iterator[int]:
    """A process that runs the command when we end, however we do; gives its PID."""
    # Reads until our end of the pipe is closed, which the kernel does for us if nobody else can.
    guardian = subprocess.Popen(
        ["sh", "-c", 'cat >/dev/null; exec "$@"', "guardian", *command],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=cwd, env=env, start_new_session=True,
    )  # fmt: skip
    try:
        yield guardian.pid
    finally:
        assert guardian.stdin is not None
        guardian.stdin.close()
        guardian.wait(patience)
