"""Keeps the garbage collector from holding the event loop of a process that knows many objects.

A full collection visits all objects of the process. Hundreds of thousands take a tenth of a second and more,
and tenants decide how many there are. So what has survived a long collection is not visited again. Nearly all
of it is freed without the collector, when nobody refers to it any more; the rest is visited once a day.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Any

_LONG = 0.02
"""Seconds of CPU time after which a full collection is long."""
_DAY = 86_400.0
_YOUNG = 10_000
"""New objects before the youngest are visited. Python's 700 are allocated by each few messages: visiting them
so often takes a twentieth of the CPU."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Bound collections within the block. What exists before is not visited at all."""
    gc.collect()
    gc.freeze()
    collections, thresholds = _Collections(), gc.get_threshold()
    gc.set_threshold(_YOUNG, *thresholds[1:])
    gc.callbacks.append(collections.note)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collections.note)
        gc.unfreeze()


class _Collections:
    def __init__(self) -> None:
        self._begun = 0.0
        self._thawed = time.monotonic()

    def note(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector before and after each collection."""
        if phase == "start":
            self._begun = time.thread_time()
        elif info["generation"] == 2 and time.thread_time() - self._begun > _LONG:
            gc.freeze()
        elif time.monotonic() - self._thawed > _DAY:
            self._thawed = time.monotonic()
            gc.unfreeze()
