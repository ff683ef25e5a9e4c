"""Runs that began and never ended: their object may be one that takes its worker's process down."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson

from bus import streams, subjects
from bus.connection import Bus, Stored
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

MAX = 3


class CrashCounts:
    """Counts, for each object of one pool, the runs in a row whose process died or stood still over them.

    They are counted by the object's key: each attempt may have a wish of its own.
    """

    def __init__(self, bus: Bus, pool: str) -> None:
        self._bus = bus
        self._pool = pool

    @contextlib.asynccontextmanager
    async def noted(
        self, key: str, wish: int, delivery: int, guilty: Callable[[], bool]
    ) -> AsyncIterator[bool]:
        """Note for as long as a run lasts that it may take us down. False if too many have done so.

        The note stays if we do not live to take it back, or if the run turns out to be `guilty`: it held the
        process up until its items were lost. An item that only waited beside the culprit is innocent.
        """
        subject = subjects.start(self._pool, key)
        last = await self._bus.last(streams.JOURNAL, subject)
        crashes = await self._counted(key, last)
        if delivery == 2:
            crashes += 1  # of the first delivery nothing was noted, only that the item is here again
        crashes = max(crashes, 1)
        if crashes >= MAX:
            yield False
            return
        at = last.sequence if last else 0
        mine = await self._bus.publish(subject, _note(wish, crashes + 1), expect_last=at)
        left = crashes
        try:
            yield True
            left = 0
        finally:
            if guilty():
                logger.error("%s: its run held the process up until its items were lost", key)
            else:
                with contextlib.suppress(WindowboxError):
                    await self._bus.publish(subject, _note(wish, left), expect_last=mine)

    async def _counted(self, key: str, note: Stored | None) -> int:
        """What the note says, unless a run has come to its end since."""
        if note is None:
            return 0
        ended = await self._bus.last(streams.JOURNAL, subjects.run(self._pool, key))
        return 0 if ended and ended.sequence > note.sequence else int(orjson.loads(note.data)["starts"])


def _note(wish: int, crashes: int) -> bytes:
    note: dict[str, Any] = {"wish": wish, "starts": crashes}
    return orjson.dumps(note)
