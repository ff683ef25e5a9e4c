"""Runs that began and never ended: their object may be one that takes its worker's process down."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson

from bus import streams, subjects
from bus.connection import Bus
from windowbox.errors import WindowboxError

MAX = 3


class CrashCounts:
    """Counts, for the objects of one pool, the runs that no process has lived to see the end of."""

    def __init__(self, bus: Bus, pool: str) -> None:
        self._bus = bus
        self._pool = pool

    @contextlib.asynccontextmanager
    async def noted(self, key: str, wish: int) -> AsyncIterator[bool]:
        """Note for as long as a run lasts that it may take us down. False if too many have done so.

        Counted are starts, not deliveries: an item that only waited beside the culprit is innocent, and so
        is one whose runs ended in any other way.
        """
        subject = subjects.start(self._pool, key)
        last = await self._bus.last(streams.JOURNAL, subject)
        found = orjson.loads(last.data) if last else {}
        # Of its first run we know only that the item is here again.
        starts = int(found["starts"]) if found.get("wish") == wish else 1
        if starts >= MAX:
            yield False
            return
        at = last.sequence if last else 0
        mine = await self._bus.publish(subject, _note(wish, starts + 1), expect_last=at)
        try:
            yield True
        finally:
            with contextlib.suppress(WindowboxError):
                await self._bus.publish(subject, _note(wish, starts), expect_last=mine)


def _note(wish: int, starts: int) -> bytes:
    note: dict[str, Any] = {"wish": wish, "starts": starts}
    return orjson.dumps(note)
