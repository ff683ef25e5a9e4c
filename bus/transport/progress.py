"""Progress of reading a stream: how far it has come, and whether messages are missing."""

from __future__ import annotations

import time

from nats.aio.msg import Msg

from bus.transport.connection import Headers
from windowbox.errors import Unreachable


class Progress:
    """How far a reading has come, and whether something is missing."""

    def __init__(self, stream: str, pending: int, newest: int) -> None:
        self.left = pending
        self.newest = newest
        """The reading is not complete before this sequence was reached."""
        self.told = False
        self._stream = stream
        self._taken = 0
        self._reached = 0
        self._heard = time.monotonic()

    @property
    def behind(self) -> bool:
        """Whether the server has sent all it has, but others have more."""
        return self.left <= 0 and self._reached < self.newest and not self.told

    def take(self, message: Msg) -> None:
        if _consumer_sequence(message) != self._taken + 1:
            raise self.lost()
        self._taken += 1
        self._reached = _stream_sequence(message)
        self.left -= 1
        self._heard = time.monotonic()

    def hear(self, headers: Headers) -> None:
        """The server is alive; perhaps it has nothing more to send."""
        if "Nats-Last-Consumer" not in headers or "Nats-Consumer-Stalled" in headers:
            return
        if int(headers["Nats-Last-Consumer"]) != self._taken:
            raise self.lost()
        # What others delete while we read never comes.
        self.left = 0

    def completed(self) -> bool:
        """True once, when all that was there at the beginning has been read."""
        if self.left > 0 or self.told or self.behind:
            return False
        self.told = True
        return True

    def check_patience(self, limit: float) -> None:
        """A server that falls silent, or does not catch up, is left for another."""
        if time.monotonic() - self._heard > limit:
            raise self.lost()

    def lost(self) -> Unreachable:
        return Unreachable(f"lost the thread while reading {self._stream}")


def _stream_sequence(message: Msg) -> int:
    return int(message.reply.split(".")[-4])


def _consumer_sequence(message: Msg) -> int:
    return int(message.reply.split(".")[-3])
