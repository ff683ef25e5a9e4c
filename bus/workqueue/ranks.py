"""Ranks: of the processes that share a consumer, one gets messages first as long as it has few in flight.

Without ranks the server distributes messages in turn, so that eight processes wake up for eight messages.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Iterator

from bus.outcomes import Done, Failed, Outcome, Unfinished
from bus.transport.connection import Bus
from bus.transport.consumers import Consumer
from bus.transport.pull import Pull

logger = logging.getLogger(__name__)

_OTHERS = range(1, 8)
_ASIDE = 8
"""The number of a process that steps aside."""
_FAILURES = 16
"""So many runs fail in a row before a process steps aside. A few may fail because of their own objects."""
_ASIDE_SECONDS = 60.0


class Rank:
    """The rank of this process among the processes of a pool. The holder of the pool's lease is first."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._number = self._other = random.choice(_OTHERS)
        self._failures = 0
        self._aside_until = 0.0

    @property
    def number(self) -> int:
        """The priority number of a pull request sent now."""
        return self._number if time.monotonic() >= self._aside_until else _ASIDE

    def pull(self, consumer: Consumer, limit: int) -> Pull:
        """Pull messages of the consumer at this rank."""
        return Pull(self._bus, consumer, limit, lambda: self.number)

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        """Get messages first within the block. For the holder of a lease."""
        self._number = 0
        try:
            yield
        finally:
            self._number = self._other

    def note(self, outcome: Outcome) -> None:
        """Step aside for a while if run after run fails: other processes may reach what this one does not."""
        match outcome:
            case Done():
                self._failures, self._aside_until = 0, 0.0
            case Failed() | Unfinished():
                self._failures += 1
                if self._failures == _FAILURES:
                    self._failures, self._aside_until = 0, time.monotonic() + _ASIDE_SECONDS
                    logger.warning("%d runs in a row have failed: others come first for a while", _FAILURES)
            case _:
                pass  # nothing was called, so nothing is known
