"""When a mirror may publish: while it holds its lease, and after the check that the bus lost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_KEPT = 30.0
"""Seconds for which mirrors stay although another process holds their lease: it may come back soon."""


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
        """To be called when another process holds the lease."""
        if self._ending is None and not self.held.is_set():
            self._ending = asyncio.get_running_loop().call_later(_KEPT, self.over.set)
