"""Network namespaces that a process enters."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_CLONE_NEWNET = 0x40000000


def enter(path: Path | str) -> None:
    """Move this thread, and what it starts from now on, into a network namespace."""
    with open(path) as there:
        enter_open(there.fileno())


def enter_open(namespace: int) -> None:
    """The same by the number of an open file."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
