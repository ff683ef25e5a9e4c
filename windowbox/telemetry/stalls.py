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
_SOON, _HELD = 0.02, 0.1
"""Seconds from a missed heartbeat to a first check, and from that to the next. If the loop's thread has used
the CPU meanwhile, the log names the task: nothing should hold the loop so long. CPU time counts, since other
programs may be busy. A heartbeat meets half of the holds of 0.4 s, so what is frequent is found."""
_MOSTLY = 0.8
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
        self._missed = (0.0, 0.0)
        """The last heartbeat that was missed, and the CPU time of the loop's thread at its first check."""
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
        reported, pause, slept = 0.0, _BEAT + _SOON, time.monotonic()
        while not self._over.wait(pause):
            woke = time.monotonic()
            late, overslept, slept = woke - self._due, woke - slept - pause, woke
            if overslept > _CHECK:
                pause = _CHECK
                continue  # the whole process was stopped, or got no CPU time: no task blocked the loop
            if late < _LIMIT:
                reported, pause = 0.0, self._look(late)
                continue
            if late >= 2 * reported:
                self._report(late)
                reported = late
            pause = _CHECK

    def _look(self, late: float) -> float:
        """Log what holds the loop if a heartbeat is late. Returns the seconds until the next check."""
        due = self._due
        if late < _SOON or sys.platform == "win32":
            return _SOON - late if late < _SOON else _LIMIT - late
        used = time.clock_gettime(time.pthread_getcpuclockid(self._thread_of_loop))
        if self._missed[0] != due:
            self._missed = (due, used)
            return _HELD
        if (held := used - self._missed[1]) > _MOSTLY * _HELD:
            name, where = self._place()
            logger.info("the event loop is held for %.2f s of CPU time or more by %s: %s", held, name, where)
        return _LIMIT - late

    def _report(self, late: float) -> None:
        """Log the task, and the innermost places of our own code in it."""
        global _latest
        name, where = self._place()
        _latest = Stall(name, time.monotonic())
        logger.warning("the event loop has been busy for %.1f s with %s: %s", late, name, where)

    def _place(self) -> tuple[str, str]:
        """The task that runs, and the innermost places of our own code in it."""
        task = asyncio.current_task(self._loop)
        name = task.get_name() if task else "no task"
        frame = sys._current_frames().get(self._thread_of_loop)
        # `extract_stack` would keep the source of all files on the stack in memory, some megabytes.
        found = [(f.f_code, line) for f, line in traceback.walk_stack(frame)] if frame else []
        places = [
            f"{code.co_filename.removeprefix(_ROOT)[1:]}:{line} {code.co_name}"
            for code, line in found
            if code.co_filename.startswith(_ROOT) and "/.venv/" not in code.co_filename
        ][:_FRAMES]
        return name, ", ".join(places) or "unknown code"
