"""What holds an event loop: its turns that take long, in CPU time of its thread.

CPU time, since other programs may be busy: by the wall clock, they would seem to hold the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from asyncio.events import Handle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

_ROOT = str(Path(__file__).parents[3])
_FRAMES = 4
_LOOK = 0.02
_QUIET = 0.011
"""Seconds of CPU time that the sum below takes on a slow machine that does nothing else."""


@dataclass
class Holds:
    """The turns of a loop that took longer than the limit: for each, its longest step."""

    limit: float
    found: list[str] = field(default_factory=list)
    longest: float = 0.0
    """The longest turn."""
    step: tuple[float, str] = (0.0, "")
    """The longest step of the present turn."""
    begun: float = 0.0
    """When the present step began."""
    where: str = ""
    """Where the present step was when it had taken a while."""

    def end_step(self, handle: Handle, seconds: float) -> None:
        if seconds > self.step[0]:
            of = getattr(getattr(handle, "_callback", None), "__self__", None)
            name = of.get_name() if isinstance(of, asyncio.Task) else type(of).__name__
            self.step = (seconds, f"{name}: {self.where or 'shortly'}")
        self.begun = 0.0

    def end_turn(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        if seconds > self.limit:
            self.found.append(f"{seconds:.3f} s, {self.step[0]:.3f} of these with {self.step[1]}")
        self.step = (0.0, "")


@contextlib.contextmanager
def measured(limit: float) -> Iterator[Holds]:
    """Measure the loop of this thread within the block."""
    holds, thread = Holds(limit), threading.get_ident()
    loop: Any = asyncio.BaseEventLoop
    run, turn = Handle._run, loop._run_once

    def run_measured(self: Handle) -> None:
        if threading.get_ident() != thread:
            run(self)
            return
        holds.begun, holds.where, began = time.monotonic(), "", time.thread_time()
        run(self)
        holds.end_step(self, time.thread_time() - began)

    def turn_measured(self: Any) -> None:
        began = time.thread_time()
        turn(self)
        if threading.get_ident() == thread:
            holds.end_turn(time.thread_time() - began)

    Handle._run, loop._run_once = run_measured, turn_measured  # type: ignore[method-assign]
    try:
        with _watched(holds, thread):
            yield holds
    finally:
        Handle._run, loop._run_once = run, turn  # type: ignore[method-assign]


@contextlib.contextmanager
def _watched(holds: Holds, thread: int) -> Iterator[None]:
    """Note in another thread where a step is that takes long."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK):
            if holds.begun and time.monotonic() - holds.begun > _LOOK and not holds.where:
                holds.where = _place(sys._current_frames().get(thread))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def _place(frame: FrameType | None) -> str:
    """The innermost places of our own code."""
    found = [(f.f_code, line) for f, line in traceback.walk_stack(frame)] if frame else []
    places = [
        f"{code.co_filename.removeprefix(_ROOT)[1:]}:{line} {code.co_name}"
        for code, line in found
        if code.co_filename.startswith(_ROOT) and "/.venv/" not in code.co_filename
    ]
    return ", ".join(places[:_FRAMES])


def slowness() -> float:
    """How much longer the same computation takes now: a core that others use, too, does less in a second."""
    began = time.thread_time()
    sum(number * number for number in range(200_000))
    return max(1.0, (time.thread_time() - began) / _QUIET)
