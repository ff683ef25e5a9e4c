"""When a mirror may publish: while it holds its lease, and after the check that the bus lost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_KEPT = 30.0
"""Seconds for which mirrors stay although another process holds their lease: it may come back soon."""
_TOLD = 16.0
"""Seconds for which a lease counts as held by whoever was seen with it: those who wait look every 15."""


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
    """The time for which a lease is ours, and on until another process has held it for a while.

    While the bus is away or its servers have no leader, a lease is nobody's: it will come back, and nothing
    has to be listed then.
    """

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._ending: asyncio.TimerHandle | None = None
        self._taken = 0.0
        self.held = asyncio.Event()
        self.over = asyncio.Event()
        """Set once another has held the lease for so long that it is at work."""

    async def hold(self) -> None:
        """To be done while the lease is held."""
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
        """To be called when another process holds the lease, and again while it does."""
        loop = asyncio.get_running_loop()
        self._taken = loop.time()
        if self._ending is None and not self.held.is_set():
            self._ending = loop.call_later(_KEPT, self._end)

    def _end(self) -> None:
        """Say that it is over, unless the other process has lost the lease meanwhile."""
        if asyncio.get_running_loop().time() - self._taken < _TOLD:
            self.over.set()
        else:
            self._ending = None
