"""The NATS server's clock: due times do not depend on the clock of this machine."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from windowbox.errors import WindowboxError

_FRESH = 60.0
"""Seconds for which one answer of the server is valid."""
_STEP = 0.25
"""Seconds by which our clock may have been set, before the server is asked again."""


def instant(time_of_server: str) -> float:
    """A time as the server spells it, as seconds since 1970."""
    return datetime.fromisoformat(time_of_server[:26].rstrip("Z") + "+00:00").timestamp()


class ServerClock:
    """The server's clock: our own plus a difference that is measured now and then."""

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        self._ask = ask
        self._ahead: float | None = None
        self._asked = 0.0
        self._wall = 0.0

    def forget(self) -> None:
        """Measure again at the next use: another server may answer from now on."""
        self._asked = 0.0

    async def now(self) -> float:
        """Seconds since 1970, for the server."""
        passed = time.monotonic() - self._asked
        # The wall clock and the monotonic clock diverge when the wall clock is set.
        was_set = abs(time.time() - self._wall - passed) > _STEP
        if self._ahead is None or not self._asked or passed > _FRESH or was_set:
            try:
                server_time = instant(await self._ask())
                self._wall, self._asked = time.time(), time.monotonic()
                self._ahead = server_time - self._wall
            except WindowboxError:
                if self._ahead is None:
                    raise
        return time.time() + self._ahead

    def rough(self) -> float:
        """The same without asking: our own time, until the server was asked once."""
        return time.time() + (self._ahead or 0.0)
