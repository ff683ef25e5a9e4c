"""When a mirror may publish: while it holds its lease, and after the check that the bus lost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_KEPT = 30.0
"""Seconds for which mirrors outlive their lease: it comes back after servers have changed roles."""


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
    """The time for which a lease is ours, and a while longer."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._ending: asyncio.TimerHandle | None = None
        self.held = asyncio.Event()
        self.over = asyncio.Event()
        """Set once the lease has been lost for so long that another is at work."""

    async def hold(self) -> None:
        """To be done while the lease is held."""
        if self._ending:
            self._ending.cancel()
        self.over.clear()
        self.held.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.held.clear()
            self._ending = asyncio.get_running_loop().call_later(_KEPT, self.over.set)
            self._lost()
