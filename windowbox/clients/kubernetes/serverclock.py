"""The clock of an API server, as the header `Date` of its answers shows it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


class ServerClock:
    """Goes on with our monotonic clock between two answers, so that nobody sets it.

    Before the first answer, it is our own.
    """

    def __init__(self) -> None:
        self.known = False
        self._ahead = time.time() - time.monotonic()
        """Unix time minus monotonic time."""

    def learn(self, date: str | None, asked: float) -> None:
        """Learn from the `Date` of an answer to a request that was sent at `asked`, a monotonic time."""
        self.known = True
        try:
            shown = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, OverflowError):
            return
        # It has whole seconds, and the answer took a while: the smallest correction is made that fits.
        earliest, latest = shown - time.monotonic(), shown + 1.0 - asked
        self._ahead = min(max(self._ahead, earliest), latest)

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.monotonic() + self._ahead, UTC)
