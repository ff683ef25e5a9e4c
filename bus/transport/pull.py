"""Pulling: one process's part of the messages of a durable consumer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from nats.aio.msg import Msg

from bus.transport import answers, consumers
from bus.transport.connection import Bus, Headers, translated
from bus.transport.consumers import Consumer, Delivery, Inbox
from bus.transport.credit import Credit
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_EXPIRES = 30.0
_AGAIN = 0.5
_PREFERRED = 64
"""Messages of a ranked consumer that a process is given before the next. Those in its hands count."""
_LAST = 9
"""The lowest rank that the server knows."""
_EARLY, _LATE = "early", "late"


class Pull:
    """Messages of a durable consumer, never more at once than the limit given.

    With `rank`, which tells a number from 0 to 8, the consumer may be ranked.
    """

    def __init__(
        self, bus: Bus, consumer: Consumer, limit: int, rank: Callable[[], int] | None = None
    ) -> None:
        self.consumer = consumer
        self._bus = bus
        self._rank = rank
        self._credit = Credit(limit, _PREFERRED if rank else None)
        self._lost = False
        self._requests = 0
        self._inbox = Inbox()

    def done(self, count: int = 1) -> None:
        """`count` messages are done with: there is room for as many more."""
        self._credit.done(count)
        if any(self._credit.wanted()):
            self._inbox.wake()

    def restart(self) -> None:
        """Begin anew, and leave unread what has arrived: it may have been given to others meanwhile."""
        self._lost = True
        self._inbox.wake()

    async def deliveries(self) -> AsyncIterator[list[Delivery]]:
        """Batches of messages as they come, for ever. A pull that fails is repeated."""
        while True:
            self._lost = False
            self._credit.begin()
            try:
                with self._bus.on_reconnect(self.restart):
                    await consumers.ensure(self._bus, self.consumer, ranked=self._rank is not None)
                    async with self._inbox.open(self._bus, several=True):
                        async for batch in self._received():
                            yield batch
            except WindowboxError as error:
                logger.info("consumer %s: %s; again in %s s", self.consumer.name, error, _AGAIN)
                await asyncio.sleep(_AGAIN)

    async def _received(self) -> AsyncIterator[list[Delivery]]:
        while not self._lost:
            await self._request_more()
            messages = await self._inbox.batch(self._heartbeat * 2.5 if self._credit.asked else None)
            if messages is None or self._lost:  # not even a heartbeat: the server has forgotten our request
                return
            batch, forged = [], 0
            for message in messages:
                if message.reply:
                    delivery = Delivery(self._bus, message)
                    if answers.is_forged(delivery.subject, delivery.headers):
                        forged += 1
                        await delivery.settle()
                    else:
                        batch.append(delivery)
                elif not self._survives(message):
                    self._lost = True
            self._credit.receive(len(batch), forged)
            if batch:
                yield batch

    async def _request_more(self) -> None:
        early, late = self._credit.wanted()
        self._credit.ask(early, late)
        if early:
            await self._request(early, self._rank() if self._rank else None)
        if late:
            await self._request(late, _LAST)

    async def _request(self, count: int, rank: int | None) -> None:
        request: dict[str, Any] = {
            "batch": count,
            "expires": int(_EXPIRES * 1e9),
            "idle_heartbeat": int(self._heartbeat * 1e9),
            # A consumer that is not ranked ignores this.
            **({} if rank is None else {"group": consumers.GROUP, "priority": rank}),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.consumer.stream}.{self.consumer.name}"
        self._requests += 1
        # A new leader of the consumer refuses each reply once, however many requests have the same.
        reply = f"{self._inbox.subject}.{_EARLY if rank != _LAST else _LATE}-{count}-{self._requests}"
        with translated(subject):
            await self._bus.client.publish(subject, orjson.dumps(request), reply=reply)

    @property
    def _heartbeat(self) -> float:
        """Seconds between two signs of life. A server alone tells when it deletes a consumer."""
        return consumers.heartbeat(self._bus) if self._bus.clustered else _EXPIRES / 2

    def _survives(self, message: Msg) -> bool:
        """Whether the consumer is still there after this word of the server."""
        headers = message.headers or {}
        match headers.get("Status"):
            case "100":
                return True
            case "408" | "409" if "Consumer" not in headers.get("Description", ""):
                self._credit.refuse(*refused(message.subject, headers))
                return True
            case _:
                return False


def refused(inbox: str, headers: Headers) -> tuple[bool, int]:
    """Whether a late request has ended, and how many of its messages will not come.

    A request that was never accepted is refused without a number: all that it asked for. So are those that a
    former leader of the consumer accepted: at most that much is still to come.
    """
    kind, asked, _ = inbox.rpartition(".")[2].split("-")
    return kind == _LATE, int(headers.get("Nats-Pending-Messages", asked))
