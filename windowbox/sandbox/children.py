"""What a child process of the sandbox is: a command, and how to see that it is ready."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Child:
    """A program to keep running.

    `ready` looks once, within a second or two. `before` is done each time before the child is started,
    `then` each time it has become ready.
    """

    name: str
    argv: list[str]
    ready: Callable[[], bool]
    port: int | None = None
    host: str = "127.0.0.1"
    env: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], None] | None = None
    then: Callable[[], None] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    inner: bool = False
    """The program is the only child of what `argv` starts, and signals are meant for it."""
