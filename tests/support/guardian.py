"""Clears what a test leaves in the system if it is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def guarded(module: str = "sandbox.nodes.leftovers", *arguments: str) -> Iterator[int]:
    """A process that runs this when we end, however we do: it removes our nodes and networks, by default."""
    # Reads until our end of the pipe is closed, which the kernel does for us if nobody else can.
    guardian = subprocess.Popen(
        ["sh", "-c", 'cat >/dev/null; exec "$0" -m "$@"', sys.executable, module, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=_ROOT, start_new_session=True,
    )  # fmt: skip
    try:
        yield guardian.pid
    finally:
        assert guardian.stdin is not None
        guardian.stdin.close()
        guardian.wait(60)
