"""Checks after an interruption whether OBJECTS lost messages. If not, no cluster is listed again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

from bus import streams
from bus.messages import UID, VERSION
from bus.transport.connection import Bus
from windowbox.errors import Superseded, TransientError, WindowboxError

logger = logging.getLogger(__name__)

_AGAIN = 1.0

Why = Literal["start", "lease", "lost", "superseded", "failed", "expired"]
"""Why a kind is listed: it is new; another process held its lease; OBJECTS lost messages; another process
published; the previous attempt failed; the watch expired."""


class Witness(NamedTuple):
    """A message of OBJECTS that this process knows."""

    sequence: int
    subject: str
    uid: str
    version: str


class Continuity:
    """Checks, once per interruption and for all mirrors of the process, that OBJECTS lost no message.

    The stream is a log: if it is the same stream, and still holds the newest known message, it holds all
    before. A recreated stream has another creation time. A stream that was rolled back to an older copy ends
    before that message, or has another in its place.
    """

    def __init__(self, bus: Bus, newest: Callable[[], Witness | None], lost: Callable[[], None]) -> None:
        """`newest` returns the newest message that the mirrors know; `lost` restarts them."""
        self._bus = bus
        self._newest = newest
        self._lost = lost
        self._created = ""
        self._witness: Witness | None = None
        self._doubted = asyncio.Event()
        self._doubted.set()
        self.intact = asyncio.Event()
        """Set once checked. Nothing is published before: a new message would hide a loss."""

    def doubt(self) -> None:
        """Check again: a loss of messages may have caused an error."""
        if self.intact.is_set():
            self.intact.clear()
            self._witness = self._newest()
        self._doubted.set()

    async def run(self) -> None:
        """Check after each call of `doubt`; never returns."""
        with self._bus.on_disconnect(self.doubt), self._bus.on_reconnect(self.doubt):
            while True:
                await self._doubted.wait()
                self._doubted.clear()
                try:
                    created = await self._creation()
                    intact = await self._is_intact(created)
                except WindowboxError as error:
                    logger.debug("OBJECTS cannot be checked for lost messages yet: %s", error)
                    await asyncio.sleep(random.uniform(0.1, _AGAIN))
                    self._doubted.set()
                    continue
                if self._doubted.is_set():
                    continue
                if not intact:
                    logger.warning("OBJECTS lost messages: all clusters are listed again")
                    self._lost()
                self._created = created
                self.intact.set()

    async def _creation(self) -> str:
        """When the stream was created."""
        return str((await self._bus.api(f"STREAM.INFO.{streams.OBJECTS}", repeat=True))["created"])

    async def _is_intact(self, created: str) -> bool:
        if not self._created:
            return True  # there was nothing to lose
        return created == self._created and (self._witness is None or await self._is_there(self._witness))

    async def _is_there(self, witness: Witness) -> bool:
        found = await self._bus.at(streams.OBJECTS, witness.sequence)
        if found is None or found.subject != witness.subject:
            return False
        return (found.headers.get(UID, ""), found.headers.get(VERSION, "")) == (witness.uid, witness.version)


async def require_held(bus: Bus, listed: str, known: Collection[int]) -> None:
    """Superseded unless OBJECTS still holds the oldest of these messages. `listed` was stored after them.

    A purge takes all before a sequence. One that was under way while they were read has been applied before
    what was stored after it.
    """
    while known:
        try:
            if await bus.at(streams.OBJECTS, min(known)) is None:
                raise Superseded(f"what was known before {listed} was purged meanwhile")
            return
        except TransientError as error:
            logger.debug("%s: what it tells cannot be checked yet: %s", listed, error)
            await asyncio.sleep(random.uniform(0.1, _AGAIN))
