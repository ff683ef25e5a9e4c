"""When mirrors may publish: while they hold their lease, and after a check that OBJECTS lost no messages.

If no message is lost, and the lease comes back soon, no cluster is listed again.
"""

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
_KEPT = 30.0
"""Seconds for which mirrors stay while another process holds their lease: it may come back soon."""
_TOLD = 16.0
"""Seconds for which the last holder seen counts as the holder: waiting processes check every 15 s."""

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
                    info = await self._bus.api(f"STREAM.INFO.{streams.OBJECTS}", repeat=True)
                    created, witness = str(info["created"]), self._witness
                    intact = not self._created or created == self._created  # at first, nothing can be lost
                    if self._created and intact and witness:
                        found = await self._bus.at(streams.OBJECTS, witness.sequence)
                        intact = found is not None and witness == Witness(
                            found.sequence,
                            found.subject,
                            found.headers.get(UID, ""),
                            found.headers.get(VERSION, ""),
                        )
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


class Permit:
    """Given while all of its conditions are met."""

    def __init__(self, *conditions: asyncio.Event) -> None:
        self._conditions = conditions

    @property
    def given(self) -> bool:
        return all(one.is_set() for one in self._conditions)

    async def wait(self) -> None:
        while not self.given:
            for one in self._conditions:
                await one.wait()


class Term:
    """The time from acquiring a lease until another process has held it for a while.

    While the bus is unreachable or without a leader, no process holds the lease: it comes back, and nothing
    has to be listed then.
    """

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._ending: asyncio.TimerHandle | None = None
        self._taken = 0.0
        self.held = asyncio.Event()
        self.over = asyncio.Event()
        """Set once another process has held the lease for so long that it mirrors."""

    async def hold(self) -> None:
        """Mark the term as held until cancelled. Run it while the lease is held."""
        if self._ending:
            self._ending.cancel()
            self._ending = None
        self.over.clear()
        self.held.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.held.clear()
            self._lost()

    def taken(self) -> None:
        """Note that another process holds the lease. Call it again while it does."""
        loop = asyncio.get_running_loop()
        self._taken = loop.time()

        def end() -> None:
            if loop.time() - self._taken < _TOLD:
                self.over.set()
            else:
                self._ending = None  # the other process has lost the lease meanwhile

        if self._ending is None and not self.held.is_set():
            self._ending = loop.call_later(_KEPT, end)


async def require_held(bus: Bus, listed: str, known: Collection[int]) -> None:
    """Raise Superseded unless OBJECTS still holds the oldest of these messages.

    Call it after `listed` is stored: a purge deletes all messages before a sequence, and a purge that was in
    progress while they were read is applied before `listed` is stored.
    """
    while known:
        try:
            if await bus.at(streams.OBJECTS, min(known)) is None:
                raise Superseded(f"objects known before {listed} were purged meanwhile")
            return
        except TransientError as error:
            logger.debug("%s: the objects known before cannot be checked yet: %s", listed, error)
            await asyncio.sleep(random.uniform(0.1, _AGAIN))
