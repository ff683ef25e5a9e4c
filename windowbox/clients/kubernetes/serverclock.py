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
        self._date, self._shown = "", 0.0
        """The last date that was read, which most answers of its second repeat, and its Unix time."""

    def learn(self, date: str | None, asked: float) -> None:
        """Learn from the `Date` of an answer to a request that was sent at `asked`, a monotonic time."""
        self.known = True
        if date != self._date or not date:
            try:
                self._shown = parsedate_to_datetime(date or "").timestamp()
            except (ValueError, OverflowError):
                return
            self._date = date or ""
        # It has whole seconds, and the answer took a while: the smallest correction is made that fits.
        earliest, latest = self._shown - time.monotonic(), self._shown + 1.0 - asked
        self._ahead = min(max(self._ahead, earliest), latest)

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.monotonic() + self._ahead, UTC)
