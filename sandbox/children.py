"""A child process of the sandbox: its command and its readiness check."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Child:
    """A program to keep running.

    `ready` checks once, within two seconds. `before` runs before each start of the child, `then` each time it
    has become ready.
    """

    name: str
    argv: list[str]
    ready: Callable[[], bool]
    port: int | None = None
    host: str = "127.0.0.1"
    env: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], None] | None = None
    then: Callable[[], None] | None = None
    held: Callable[[], bool] | None = None
    """Whether it cannot run now, such as a kubelet without its containerd: it is started once it can, and
    ends without a crash meanwhile."""
    needs: tuple[Path, ...] = ()
    """Programs that may still be missing: the child starts once they are there."""
    stop_signal: signal.Signals = signal.SIGTERM
    inner: bool = False
    """The program is the only child of what `argv` starts, and signals are meant for it."""
