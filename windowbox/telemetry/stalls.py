"""Detects that the event loop is blocked, and logs the task and stack that block it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_BEAT = 0.5
_LIMIT = 0.5
"""Seconds by which a heartbeat is late before the log names the blocking task."""
_CHECK = 0.25
"""Seconds between two checks of a late loop. A loop in time is checked less often."""
_FRAMES = 3
_ROOT = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class Stall:
    """A period in which one step of one task blocked the event loop."""

    task: str
    """The name of the task; for an item of a pool this is the item's subject."""
    at: float
    """When the thread last found it blocking, by the monotonic clock."""


_latest = Stall("", 0.0)


def culprit(within: float) -> str:
    """The task that blocked the loop within the last `within` seconds; empty if none did."""
    return _latest.task if time.monotonic() - _latest.at < within else ""


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Watch the running event loop."""
    watch = _Watch(asyncio.get_running_loop())
    watch.beat()
    watch.thread.start()
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    """The loop records heartbeats; a thread checks them, since a blocked loop cannot."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_of_loop = threading.get_ident()
        self._due = time.monotonic()
        self._next: asyncio.TimerHandle | None = None
        self._over = threading.Event()
        self.thread = threading.Thread(target=self._listen, name="stalls", daemon=True)

    def stop(self) -> None:
        self._over.set()
        if self._next:
            self._next.cancel()
        self.thread.join()

    def beat(self) -> None:
        now = time.monotonic()
        metrics.loop_lag.observe(max(0.0, now - self._due))
        self._due = now + _BEAT
        self._next = self._loop.call_later(_BEAT, self.beat)

    def _listen(self) -> None:
        reported, pause, slept = 0.0, _BEAT + _LIMIT, time.monotonic()
        while not self._over.wait(pause):
            woke = time.monotonic()
            late, overslept, slept = woke - self._due, woke - slept - pause, woke
            if overslept > _CHECK:
                pause = _CHECK
                continue  # the whole process was stopped, or got no CPU time: no task blocked the loop
            if late < _LIMIT:
                reported, pause = 0.0, _LIMIT - late
                continue
            if late >= 2 * reported:
                self._report(late)
                reported = late
            pause = _CHECK

    def _report(self, late: float) -> None:
        """Log the task, and the innermost places of our own code in it."""
        global _latest
        task = asyncio.current_task(self._loop)
        name = task.get_name() if task else "no task"
        _latest = Stall(name, time.monotonic())
        frame = sys._current_frames().get(self._thread_of_loop)
        # `extract_stack` would keep the source of all files on the stack in memory, some megabytes.
        found = [(f.f_code, line) for f, line in traceback.walk_stack(frame)] if frame else []
        places = [
            f"{code.co_filename.removeprefix(_ROOT)[1:]}:{line} {code.co_name}"
            for code, line in found
            if code.co_filename.startswith(_ROOT) and "/.venv/" not in code.co_filename
        ][:_FRAMES]
        where = ", ".join(places) or "unknown code"
        logger.warning("the event loop has been busy for %.1f s with %s: %s", late, name, where)
