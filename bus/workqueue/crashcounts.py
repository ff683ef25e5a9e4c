"""Counts runs that began and never ended: an object that may crash its worker is quarantined."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from bus import streams, subjects
from bus.transport.connection import Bus, WrongSequence
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

MAX = 3

_PATIENCE = 2.0
"""Seconds for a question. While it waits, a process that is cut off holds up redelivered items."""


class CrashCounts:
    """Counts, for each object of one pool, the runs in a row during which their process died or stood still.

    They are counted by the object's key: each attempt may have a wish of its own.
    """

    def __init__(self, bus: Bus, pool: str) -> None:
        self._bus = bus
        self._pool = pool
        self._one_at_a_time = asyncio.Lock()
        self._innocent: dict[str, str] = {}
        """Our noted starts that did no harm, with the subject of the note: to be withdrawn."""

    @contextlib.asynccontextmanager
    async def counted(
        self, key: str, wish: int, delivery: int, guilty: Callable[[], bool]
    ) -> AsyncIterator[bool]:
        """Note, for as long as a run lasts, that it may crash us. False if too many runs have done so.

        Such runs take place one at a time: a crash has one culprit. The note stays if the process dies before
        it withdraws the note, or if the run is `guilty`: it blocked the process until its items were lost. An
        item that waited beside the culprit is innocent, and so is an item whose process was cut off from the
        bus: that process withdraws its note once it is connected again.
        """
        subject, start = subjects.start(self._pool, key), secrets.token_hex(4)
        async with self._one_at_a_time:
            await self.withdraw()
            try:
                mine = await self._note(subject, key, wish, delivery, start)
                yield mine is not None
            except BaseException:
                if guilty():
                    logger.error("%s: its run blocked the process until its leases of items expired", key)
                else:
                    self._innocent[start] = subject
                    await self.withdraw()
                raise
            if mine is not None:
                with contextlib.suppress(WindowboxError):
                    await self._bus.publish(subject, Note(wish, 0).encoded(), expect_last=mine)

    async def _note(self, subject: str, key: str, wish: int, delivery: int, start: str) -> int | None:
        """Note one more start; None, and nothing is noted, if too many have not ended."""
        while True:
            last = await self._bus.last(streams.JOURNAL, subject)
            before = Note(0, 0)
            if last is not None:
                # A record that is newer than the note is of a run that has ended.
                ended = await self._bus.last(streams.JOURNAL, subjects.run(self._pool, key))
                if not (ended and ended.sequence > last.sequence):
                    before = Note.decoded(last.data)
            # The first delivery is not noted: the second proves that it did not end.
            starts = max(before.starts + (delivery == 2), 1)
            if starts >= MAX:
                return None
            note = Note(wish, starts + 1, (*before.by, start))
            with contextlib.suppress(WrongSequence):
                return await self._bus.publish(
                    subject, note.encoded(), expect_last=last.sequence if last else 0
                )

    async def withdraw(self) -> None:
        """Withdraw the notes of starts that did no harm, as far as the bus can be reached."""
        for start, subject in list(self._innocent.items()):
            with contextlib.suppress(WindowboxError):
                last = await self._bus.last(streams.JOURNAL, subject, _PATIENCE)
                note = Note.decoded(last.data) if last else None
                if last and note and start in note.by:
                    by = tuple(one for one in note.by if one != start)
                    data = Note(note.wish, note.starts - 1, by).encoded()
                    await self._bus.publish(subject, data, expect_last=last.sequence, timeout=_PATIENCE)
                self._innocent.pop(start, None)


@dataclass(frozen=True)
class Note:
    """The number of runs of an object that began in a row and did not end."""

    wish: int
    starts: int
    by: tuple[str, ...] = ()
    """The starts among them that can be withdrawn."""

    def encoded(self) -> bytes:
        return orjson.dumps({"wish": self.wish, "starts": self.starts, "by": self.by})

    @classmethod
    def decoded(cls, data: bytes) -> Note:
        found: dict[str, Any] = orjson.loads(data)
        return cls(found["wish"], found["starts"], tuple(found.get("by", ())))
