"""Pulls: one process's share of the messages of a durable consumer, by requests with a rank.

nats-py's pull subscription knows neither ranks nor how many messages a refused request leaves out, and its
`fetch` starts a request for each batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson

from bus.transport import answers, consumers
from bus.transport.connection import Bus, Headers, translated
from bus.transport.consumers import Consumer, Delivery, Inbox
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_EXPIRES = 30.0
_AGAIN = 0.5
_PREFERRED = 64
"""Messages of a ranked consumer that a process gets before the next one, including those in flight."""
_LAST = 9
"""The lowest rank that the server knows."""
_EARLY, _LATE = "early", "late"


class Pull:
    """Messages of a durable consumer, never more at once than the limit.

    With `rank`, which returns a number from 0 to 8, the consumer is ranked.
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
        """Make room for `count` more messages: so many have been processed."""
        self._credit.done(count)
        if any(self._credit.wanted()):
            self._inbox.wake()

    def restart(self) -> None:
        """Pull from the beginning, and drop unread messages: they may have been redelivered meanwhile."""
        self._lost = True
        self._inbox.wake()

    async def deliveries(self) -> AsyncIterator[list[Delivery]]:
        """Batches of messages as they come; never returns. A pull that fails is repeated."""
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
        """Batches of messages until the pull has to begin again."""
        while not self._lost:
            early, late = self._credit.wanted()
            self._credit.ask(early, late)
            if early:
                await self._request(early, self._rank() if self._rank else None)
            if late:
                await self._request(late, _LAST)
            messages = await self._inbox.batch(self._heartbeat * 2.5 if self._credit.asked else None)
            if messages is None or self._lost:  # without a heartbeat, the server has forgotten our request
                return
            batch, forged = [], 0
            for message in messages:
                headers = message.headers or {}
                if message.reply:
                    delivery = Delivery(self._bus, message)
                    if answers.is_forged(delivery.subject, delivery.headers):
                        forged += 1
                        await delivery.settle()
                    else:
                        batch.append(delivery)
                elif (status := headers.get("Status")) == "100":
                    continue  # a heartbeat
                # 408: the request has expired; 409: it was refused, or the consumer has another leader.
                elif status in ("408", "409") and "Consumer" not in headers.get("Description", ""):
                    self._credit.refuse(*refused(message.subject, headers))
                else:
                    self._lost = True  # the consumer is deleted
            self._credit.receive(len(batch), forged)
            if batch:
                yield batch

    async def _request(self, count: int, rank: int | None) -> None:
        request: dict[str, Any] = {
            "batch": count,
            "expires": int(_EXPIRES * 1e9),
            "idle_heartbeat": int(self._heartbeat * 1e9),
            **({} if rank is None else {"group": consumers.GROUP, "priority": rank}),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.consumer.stream}.{self.consumer.name}"
        self._requests += 1
        # A new leader of the consumer refuses each reply subject once, however many requests share it.
        reply = f"{self._inbox.subject}.{_EARLY if rank != _LAST else _LATE}-{count}-{self._requests}"
        with translated(subject):
            await self._bus.client.publish(subject, orjson.dumps(request), reply=reply)

    @property
    def _heartbeat(self) -> float:
        """Seconds between two heartbeats. A single server says when it deletes a consumer."""
        return consumers.heartbeat(self._bus) if self._bus.clustered else _EXPIRES / 2


def refused(inbox: str, headers: Headers) -> tuple[bool, int]:
    """Whether a late request has ended, and how many of its messages will not come.

    A request that was never accepted is refused without a number: nothing of it comes. A request that a
    former leader of the consumer had accepted is, too: at most so many are still to come.
    """
    kind, asked, _ = inbox.rpartition(".")[2].split("-")
    return kind == _LATE, int(headers.get("Nats-Pending-Messages", asked))


class Credit:
    """How many messages a pull has room for: `limit`, less those in flight and those requested.

    With `preferred`, only so many, less those in flight, are requested at our rank ("early"). The rest is
    requested after all other processes ("late"): a process with enough work is not preferred.
    """

    def __init__(self, limit: int, preferred: int | None = None) -> None:
        self._limit = limit
        self._preferred = limit if preferred is None else min(preferred, limit)
        self._split = preferred is not None
        self._in_flight = 0
        self.early = 0
        """Requested at our rank."""
        self.late = 0
        """Requested after all others."""

    @property
    def asked(self) -> int:
        return self.early + self.late

    def begin(self) -> None:
        """Forget all requests. Messages in flight stay."""
        self.early = self.late = 0

    def wanted(self) -> tuple[int, int]:
        """Numbers to request now, early and late: none until much is used up, so that requests are few."""
        room = self._limit - self._in_flight - self.asked
        if room <= 0:
            return 0, 0
        enough = max(1, (self._limit - self._in_flight) // 2) if self.asked else 1
        early = min(room, self._preferred - self._in_flight - self.early)
        if early < (max(1, self._preferred // 4) if self._split else enough):
            early = 0
        late = room - early if self._split else 0
        if late < enough:
            late = 0
        return early, late

    def ask(self, early: int, late: int) -> None:
        self.early += early
        self.late += late

    def receive(self, kept: int, dropped: int) -> None:
        """Book messages that have come. Early requests are answered first."""
        early = min(self.early, kept + dropped)
        self.early -= early
        self.late = max(0, self.late - (kept + dropped - early))
        self._in_flight += kept

    def refuse(self, late: bool, count: int) -> None:
        """Book that `count` messages of a request will not come."""
        if late:
            self.late, self.early = _less(self.late, self.early, count)
        else:
            self.early, self.late = _less(self.early, self.late, count)

    def done(self, count: int) -> None:
        self._in_flight -= count


def _less(kind: int, other: int, count: int) -> tuple[int, int]:
    """Both less `count` of the first kind; what exceeds it is taken from the other kind.

    A late request may have brought messages that are booked as early, while the early one was on its way.
    """
    over = max(0, count - kind)
    return kind - (count - over), max(0, other - over)
