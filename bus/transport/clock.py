"""The NATS server's clock: due times do not depend on the clock of this machine."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from windowbox.errors import WindowboxError

_FRESH = 60.0
"""Seconds for which one look at the server's clock will do."""
_STEP = 0.25
"""Seconds by which our own clock may run differently from what passes, before we look again."""


def instant(time_of_server: str) -> float:
    """A time as the server spells it, as seconds since 1970."""
    return datetime.fromisoformat(time_of_server[:26].rstrip("Z") + "+00:00").timestamp()


class ServerClock:
    """The server's clock, as far as it differs from ours. It is asked now and then."""

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        self._ask = ask
        self._ahead: float | None = None
        self._asked = 0.0
        self._wall = 0.0

    def forget(self) -> None:
        """The next who wants to know asks: another server may answer from now on."""
        self._asked = 0.0

    async def now(self) -> float:
        """Seconds since 1970, for the server."""
        if self._stale():
            try:
                self._learn(instant(await self._ask()))
            except WindowboxError:
                if self._ahead is None:
                    raise
        assert self._ahead is not None
        return time.time() + self._ahead

    def rough(self) -> float:
        """The same without asking: our own time, until the server was asked once."""
        return time.time() + (self._ahead or 0.0)

    def _learn(self, server_time: float) -> None:
        self._wall, self._asked = time.time(), time.monotonic()
        self._ahead = server_time - self._wall

    def _stale(self) -> bool:
        if self._ahead is None or not self._asked:
            return True
        passed = time.monotonic() - self._asked
        return passed > _FRESH or abs(time.time() - self._wall - passed) > _STEP
