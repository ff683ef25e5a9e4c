"""Ranks: of the processes that share a consumer, one is given messages first, as long as it has few in hand.

Without ranks the server hands messages to all in turn, so that eight processes wake up for eight messages.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Iterator

from bus.leases import presence
from bus.outcomes import Done, Failed, Outcome, Unfinished
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.transport.consumers import Consumer
from bus.transport.pull import Pull
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_OTHERS = range(1, 8)
_ASIDE = 8
"""The number of a process that steps aside."""
_FAILURES = 16
"""So many runs fail in a row before a process steps aside. A few may have failed for what they ask for."""
_ASIDE_SECONDS = 60.0


class Rank:
    """Where this process stands among those who serve a pool. Whoever holds a lease of the pool is first."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._number = self._other = random.choice(_OTHERS)
        self._consumers: list[Consumer] = []
        self._failures = 0
        self._aside_until = 0.0

    @property
    def number(self) -> int:
        """With which number to ask now."""
        return self._number if time.monotonic() >= self._aside_until else _ASIDE

    def pull(self, consumer: Consumer, limit: int) -> Pull:
        """Take messages of the consumer at this rank."""
        self._consumers.append(consumer)
        return Pull(self._bus, consumer, limit, lambda: self.number)

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        """Ask first from now on. For the holder of a lease."""
        self._number = 0
        try:
            yield
        finally:
            self._number = self._other

    def note(self, outcome: Outcome) -> None:
        """Step aside for a while if run after run fails here: other processes may reach what we do not."""
        match outcome:
            case Done():
                self._failures, self._aside_until = 0, 0.0
            case Failed() | Unfinished():
                self._failures += 1
                if self._failures == _FAILURES:
                    self._failures, self._aside_until = 0, time.monotonic() + _ASIDE_SECONDS
                    logger.warning("%d runs in a row have failed: others come first for a while", _FAILURES)
            case _:
                pass  # nothing was reached, so nothing is known

    async def establish(self) -> None:
        """Have the consumers ranked, if all who are there ask with a rank.

        An older process is refused by a ranked consumer, and sets it back.
        """
        try:
            plain = [one for one in self._consumers if await self._is_plain(one)]
            if plain and await self._all_know():
                for consumer in plain:
                    await consumers.set_ranked(self._bus, consumer)
                    logger.info("consumer %s is ranked", consumer.name)
        except WindowboxError as error:
            logger.debug("consumers are not ranked: %s", error)

    async def _is_plain(self, consumer: Consumer) -> bool:
        """Whether nothing but ranks is missing: what others have set otherwise is left alone."""
        return not await consumers.matches(self._bus, consumer, ranked=True) and await consumers.matches(
            self._bus, consumer, ranked=False
        )

    async def _all_know(self) -> bool:
        """Whether all processes that answer ask with a rank. If not even ours does, we may not ask that."""
        found = await presence.processes(self._bus, presence.TAKING)
        return bool(found) and all(one.get(presence.RANKED) for one in found)
