"""Tells when files change, by inotify."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import struct
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_CLOSE_WRITE, _MOVED_TO, _CREATE = 0x8, 0x80, 0x100
_MASK = _CLOSE_WRITE | _MOVED_TO | _CREATE
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS = 1 << 16
_HEAD = struct.Struct("iIII")
_PROJECTED = "..data"
"""The link by which kubelet exchanges all files of a volume at once."""


@contextlib.asynccontextmanager
async def watched(paths: Collection[Path]) -> AsyncIterator[asyncio.Event]:
    """An event that is set whenever one of these files may have changed.

    Their folders are watched, because a file that is replaced is another one.
    """
    changed = asyncio.Event()
    places = {path.absolute() for path in paths} | {path.resolve() for path in paths}
    if (descriptor := _opened({place.parent for place in places})) is None:
        yield changed
        return
    loop, names = asyncio.get_running_loop(), {_PROJECTED, *(place.name for place in places)}

    def noticed() -> None:
        with contextlib.suppress(BlockingIOError):
            if not names.isdisjoint(_names(os.read(descriptor, _EVENTS))):
                changed.set()

    loop.add_reader(descriptor, noticed)
    try:
        yield changed
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _names(events: bytes) -> Iterator[str]:
    """The names of the files that these events are about."""
    place = 0
    while place < len(events):
        *_, length = _HEAD.unpack_from(events, place)
        place += _HEAD.size + length
        yield os.fsdecode(events[place - length : place].rstrip(b"\0"))


def _opened(folders: set[Path]) -> int | None:
    """A descriptor that tells of these folders; None where there is no inotify."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor: int = library.inotify_init1(_FLAGS)
    except AttributeError:
        logger.info("this system has no inotify: changed credentials are found within a minute")
        return None
    if descriptor < 0:
        reason = os.strerror(ctypes.get_errno())
        logger.warning("no inotify instance (%s): changed credentials are found within a minute", reason)
        return None
    for folder in folders:
        if library.inotify_add_watch(descriptor, os.fsencode(folder), _MASK) < 0:
            logger.warning("%s cannot be watched: %s", folder, os.strerror(ctypes.get_errno()))
    return descriptor
