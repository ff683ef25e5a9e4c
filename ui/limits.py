"""What one client may take: requests, open streams; and what all may."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from webhooks.connections import peer_of

_RATE, _BURST = 20.0, 100.0
"""Requests per second of one client, and how many may come at once."""
_MOST_CLIENTS = 4096
MOST_STREAMS, MOST_STREAMS_OF_ONE = 300, 20
"""Open windows of all clients, and of one."""
MOST_SIGNING_IN = 10.0
"""Attempts to sign in of one client at once; afterwards one every `_SIGNING_IN` seconds."""
_SIGNING_IN = 6.0


class Crowded(Exception):
    """The client, or all together, take too much: try again after so many seconds."""

    def __init__(self, after: int) -> None:
        super().__init__(after)
        self.after = after


class Budget:
    """Allows so many acts per second of each client, and some at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left: dict[str, tuple[float, float]] = {}
        """By client: what was left, and when."""

    def take(self, client: str) -> None:
        """Crowded if nothing is left."""
        now = time.monotonic()
        left, at = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        self._left[client] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self._left) > _MOST_CLIENTS:
            del self._left[next(iter(self._left))]
        if left < 1:
            raise Crowded(max(1, round((1 - left) / self._rate)))


class Limits:
    """The budgets of all clients."""

    def __init__(self) -> None:
        self.requests = Budget(_RATE, _BURST)
        self.signing_in = Budget(1 / _SIGNING_IN, MOST_SIGNING_IN)
        self._streams = Counter[str]()

    @contextlib.contextmanager
    def stream(self, client: str) -> Iterator[None]:
        """Count an open stream; Crowded beyond the limits."""
        if self._streams[client] >= MOST_STREAMS_OF_ONE or self._streams.total() >= MOST_STREAMS:
            raise Crowded(5)
        self._streams[client] += 1
        try:
            yield
        finally:
            self._streams[client] -= 1
            if not self._streams[client]:
                del self._streams[client]


def client_of(remote: str | None) -> str:
    """The client with this address."""
    return peer_of(remote or "")
