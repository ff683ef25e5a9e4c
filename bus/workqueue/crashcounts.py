"""Counts runs that began and never ended: such an object may crash its worker, and is quarantined."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from bus import streams, subjects
from bus.transport.connection import Bus, Stored, WrongSequence
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

MAX = 3

_PATIENCE = 2.0
"""Seconds for a question. Whoever is cut off holds up the items that come again while it waits."""


class CrashCounts:
    """Counts, for each object of one pool, the runs in a row whose process died or stood still over them.

    They are counted by the object's key: each attempt may have a wish of its own.
    """

    def __init__(self, bus: Bus, pool: str) -> None:
        self._bus = bus
        self._pool = pool
        self._innocent: dict[str, str] = {}
        """Starts of ours that are noted and did no harm, with the subject of the note: to be taken back."""

    @contextlib.asynccontextmanager
    async def noted(
        self, key: str, wish: int, delivery: int, guilty: Callable[[], bool]
    ) -> AsyncIterator[bool]:
        """Note for as long as a run lasts that it may take us down. False if too many have done so.

        The note stays if we do not live to take it back, or if the run turns out to be `guilty`: it held the
        process up until its items were lost. An item that only waited beside the culprit is innocent, and so
        is one whose process was cut off from the bus: that takes its note back once it is connected again.
        """
        await self.take_back()
        subject, start = subjects.start(self._pool, key), secrets.token_hex(4)
        try:
            mine = await self._note(subject, key, wish, delivery, start)
            yield mine is not None
        except BaseException:
            if guilty():
                logger.error("%s: its run blocked the process until its leases of items expired", key)
            else:
                self._innocent[start] = subject
                await self.take_back()
            raise
        if mine is not None:
            with contextlib.suppress(WindowboxError):
                await self._bus.publish(subject, Note(wish, 0).encoded(), expect_last=mine)

    async def _note(self, subject: str, key: str, wish: int, delivery: int, start: str) -> int | None:
        """Note one more start; None, and nothing is noted, if too many have not ended."""
        while True:
            last = await self._bus.last(streams.JOURNAL, subject)
            before = await self._counted(key, last)
            # Of the first delivery nothing was noted, only that the item is here again.
            starts = max(before.starts + (delivery == 2), 1)
            if starts >= MAX:
                return None
            note = Note(wish, starts + 1, (*before.by, start))
            with contextlib.suppress(WrongSequence):
                return await self._bus.publish(
                    subject, note.encoded(), expect_last=last.sequence if last else 0
                )

    async def take_back(self) -> None:
        """Take back what is noted of starts that did no harm, as far as the bus can be reached."""
        for start, subject in list(self._innocent.items()):
            with contextlib.suppress(WindowboxError):
                last = await self._bus.last(streams.JOURNAL, subject, _PATIENCE)
                note = Note.decoded(last.data) if last else None
                if last and note and start in note.by:
                    data = note.without(start).encoded()
                    await self._bus.publish(subject, data, expect_last=last.sequence, timeout=_PATIENCE)
                self._innocent.pop(start, None)

    async def _counted(self, key: str, last: Stored | None) -> Note:
        """What the note says, unless a run has come to its end since."""
        if last is None:
            return Note(0, 0)
        ended = await self._bus.last(streams.JOURNAL, subjects.run(self._pool, key))
        return Note(0, 0) if ended and ended.sequence > last.sequence else Note.decoded(last.data)


@dataclass(frozen=True)
class Note:
    """How many runs of an object began in a row and did not end."""

    wish: int
    starts: int
    by: tuple[str, ...] = ()
    """Those of them that can be taken back."""

    def without(self, start: str) -> Note:
        return Note(self.wish, self.starts - 1, tuple(one for one in self.by if one != start))

    def encoded(self) -> bytes:
        return orjson.dumps({"wish": self.wish, "starts": self.starts, "by": self.by})

    @classmethod
    def decoded(cls, data: bytes) -> Note:
        found: dict[str, Any] = orjson.loads(data)
        return cls(found["wish"], found["starts"], tuple(found.get("by", ())))
