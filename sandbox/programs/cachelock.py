"""A file lock: one process at a time fills a part of the cache."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator

from sandbox.programs import binaries
from sandbox.progress import Progress


@contextlib.contextmanager
def held(part: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of `part` of the cache. The kernel releases it when the holder dies."""
    binaries.cache().mkdir(parents=True, exist_ok=True)
    with (binaries.cache() / f"{part}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"  another process is getting {part}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
