"""Requests to the server, and the inbox that matches its responses to them.

nats-py can do this too. But every object passes here a dozen times, and doing it by hand takes half the time.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count

import nats.errors
from nats.aio.msg import Msg

from bus.transport.directclient import DirectClient
from windowbox.errors import Malformed

_NOBODY = "503"
_LONGEST_SUBJECT = 3840
"""The server ends a connection whose line is longer than 4,096 bytes: with subject, inbox and sizes."""


class Requests:
    """Questions over one connection. All answers arrive at one inbox; the last token tells whose they are."""

    def __init__(self, client: DirectClient) -> None:
        self._client = client
        self._inbox = ""
        self._opening = asyncio.Lock()
        self._numbers = count()
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self.answered = 0.0
        """When the last question was asked, by the monotonic clock, that has been answered."""

    async def ask(
        self, subject: str, data: bytes, timeout: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """The answer to one question. Raises what nats raises."""
        if len(subject) > _LONGEST_SUBJECT:
            raise Malformed(f"subject {subject[:80]}… has {len(subject)} characters, too many for the bus")
        if not self._inbox:
            await self._open()
        loop = asyncio.get_running_loop()
        number, asked = str(next(self._numbers)), time.monotonic()
        answer = self._waiting[number] = loop.create_future()
        timer = loop.call_later(timeout, _give_up, answer)
        try:
            await self._client.publish(subject, data, self._inbox + number, headers)
            found: Msg = await answer
        finally:
            timer.cancel()
            del self._waiting[number]
        if not found.data and found.headers and found.headers.get("Status") == _NOBODY:
            raise nats.errors.NoRespondersError
        self.answered = max(self.answered, asked)
        return found

    def lose(self) -> None:
        """The connection is lost, and with it the answers to all that was asked."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(nats.errors.ConnectionClosedError())

    async def _open(self) -> None:
        async with self._opening:
            if not self._inbox:
                inbox = self._client.new_inbox() + "."
                await self._client.listen(inbox + "*", self._take)
                self._inbox = inbox

    def _take(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer and not answer.done():
            answer.set_result(message)


def _give_up(answer: asyncio.Future[Msg]) -> None:
    if not answer.done():
        answer.set_exception(nats.errors.TimeoutError())
