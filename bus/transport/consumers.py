"""Consumers: durable ones that processes share, and ordered ones that read a stream once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, NamedTuple

from nats.aio.msg import Msg

from bus.transport import answers
from bus.transport.connection import ApiError, Bus, Headers, Since, Stored, translated
from bus.transport.progress import Progress
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_LAG = 0.1
"""Seconds between checks whether a lagging server has caught up."""
_CONSUMER_NOT_FOUND = 10014
_CONSUMER_EXISTS = 10148
GROUP = "all"
"""Of those who take messages of a ranked consumer: the server wants a name."""


class Delivery:
    """A message of a durable consumer, to be acknowledged before its ack wait is over."""

    __slots__ = ("_bus", "_message", "data", "headers", "number", "sequence", "subject")

    def __init__(self, bus: Bus, message: Msg) -> None:
        tokens = message.reply.split(".")
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>, with two
        # more tokens in front of the stream where the server has a domain.
        at = 2 if len(tokens) < 11 else 4
        self._bus = bus
        self._message = message
        self.subject = message.subject
        self.data = message.data
        self.headers: Headers = message.headers or {}
        self.number = int(tokens[at + 2])
        self.sequence = int(tokens[at + 3])

    @property
    def stored(self) -> Stored:
        return Stored(self.subject, self.sequence, "", self.headers, self.data)

    async def ack(self) -> None:
        """Acknowledge, and wait for the server's confirmation."""
        await self._bus.ask(f"ack {self.subject}", self._message.reply, b"+ACK", repeat=True)

    async def settle(self) -> None:
        """Acknowledge without a confirmation: if it is lost, the message is redelivered."""
        await self._say(b"+ACK")

    async def in_progress(self) -> None:
        """Reset the ack wait."""
        await self._say(b"+WPI")

    async def keep_for_sure(self, timeout: float) -> None:
        """Reset the ack wait, and wait for the server's confirmation."""
        await self._bus.ask(f"keep {self.subject}", self._message.reply, b"+WPI", timeout)

    async def nak(self, delay: float = 0.0) -> None:
        await self._say(b"-NAK" + (b' {"delay":%d}' % int(delay * 1e9) if delay else b""))

    async def _say(self, word: bytes) -> None:
        with translated(f"ack {self.subject}"):
            await self._bus.client.publish(self._message.reply, word)


class Consumer(NamedTuple):
    """A durable consumer, shared by processes: the server keeps its position."""

    stream: str
    name: str
    filters: tuple[str, ...]
    ack_wait: float
    deliver: str = "all"
    max_pending: int = 4096

    def config(self, *, ranked: bool = False) -> dict[str, Any]:
        """The server's configuration. With `ranked`, pulls of the lowest priority number come first."""
        return {
            **({"priority_policy": "prioritized", "priority_groups": [GROUP]} if ranked else {}),
            "durable_name": self.name,
            "name": self.name,
            "filter_subjects": list(self.filters),
            "ack_policy": "explicit",
            "ack_wait": int(self.ack_wait * 1e9),
            "deliver_policy": self.deliver,
            "max_ack_pending": self.max_pending,
            "max_deliver": -1,
            "max_waiting": 512,
            "replay_policy": "instant",
        }


async def ensure(bus: Bus, consumer: Consumer, *, ranked: bool = False) -> None:
    """Create or update the consumer. With `ranked` a new one is ranked, and a ranked one stays so."""
    if not (ranked and await matches(bus, consumer, ranked=True)):
        await _make(bus, consumer, consumer.config(), "")


async def matches(bus: Bus, consumer: Consumer, *, ranked: bool) -> bool:
    """Whether the consumer has this configuration. A missing one is created."""
    try:
        await _make(bus, consumer, consumer.config(ranked=ranked), "create")
    except ApiError as error:
        if error.code != _CONSUMER_EXISTS:
            raise
        return False
    return True


async def set_ranked(bus: Bus, consumer: Consumer) -> None:
    """Make the consumer ranked. Afterwards the server refuses pulls without a rank."""
    await _make(bus, consumer, consumer.config(ranked=True), "")


async def _make(bus: Bus, consumer: Consumer, config: dict[str, Any], action: str) -> None:
    await bus.api(
        f"CONSUMER.CREATE.{consumer.stream}.{consumer.name}",
        {"stream_name": consumer.stream, "config": config, "action": action},
    )


class Inbox:
    """Receives messages of a subscription. nats-py's own iterators make a task for each; this does not."""

    def __init__(self) -> None:
        self.subject = ""
        self._messages: list[Msg] = []
        self._woken = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open(self, bus: Bus, *, several: bool = False) -> AsyncIterator[None]:
        """Subscribe to `subject`; with `several`, to those with one more token."""
        self.subject = bus.client.new_inbox()
        self._messages = []
        with translated("subscribe"):
            subscription = await bus.client.listen(self.subject + ".*" * several, self._take)
        try:
            yield
        finally:
            with contextlib.suppress(WindowboxError), translated("unsubscribe"):
                await subscription.unsubscribe()

    def wake(self) -> None:
        """Have `batch` return, even if empty."""
        self._woken.set()

    async def batch(self, timeout: float | None) -> list[Msg] | None:
        """The messages that have arrived; None after the timeout."""
        if not self._messages:
            try:
                async with asyncio.timeout(timeout):
                    await self._woken.wait()
            except TimeoutError:
                return None
        self._woken.clear()
        messages, self._messages = self._messages, []
        return messages

    def _take(self, message: Msg) -> None:
        self._messages.append(message)
        self._woken.set()


async def remove(bus: Bus, stream: str, name: str) -> None:
    try:
        await bus.api(f"CONSUMER.DELETE.{stream}.{name}")
    except ApiError as error:
        if error.code != _CONSUMER_NOT_FOUND:
            raise


async def snapshot(
    bus: Bus,
    stream: str,
    filters: list[str],
    *,
    headers_only: bool = False,
    history: bool = False,
    since: Since = 0,
) -> AsyncIterator[Stored]:
    """The messages in the stream now: the last of each subject, or with `history` all.

    With `since`, all from this sequence or time.
    """
    reading = _Reading(stream, filters, headers_only, history, since)
    async for stored in _read(bus, reading, follow=False):
        if stored is not None:
            yield stored


async def follow(
    bus: Bus, stream: str, filters: list[str], *, history: bool = False, since: Since = 0
) -> AsyncIterator[Stored | None]:
    """Like `snapshot`, then new messages until the connection breaks. None marks the end of the snapshot."""
    async for stored in _read(bus, _Reading(stream, filters, False, history, since), follow=True):
        yield stored


class _Reading(NamedTuple):
    """An ephemeral consumer of a stream. The server deletes it when it is inactive."""

    stream: str
    filters: list[str]
    headers_only: bool
    history: bool
    since: Since

    def config(self, name: str, inbox: str, heartbeat: float) -> dict[str, Any]:
        return {
            "name": name,
            "deliver_subject": inbox,
            "filter_subjects": self.filters,
            "ack_policy": "none",
            "flow_control": True,
            "idle_heartbeat": int(heartbeat * 1e9),
            "headers_only": self.headers_only,
            "inactive_threshold": int(30e9),
            "mem_storage": True,
            "num_replicas": 1,
            "max_deliver": 1,
            **self._start(),
        }

    def _start(self) -> dict[str, Any]:
        if isinstance(self.since, datetime):
            return {"deliver_policy": "by_start_time", "opt_start_time": self.since.isoformat()}
        if self.since:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": self.since}
        return {"deliver_policy": "all" if self.history else "last_per_subject"}


async def _read(bus: Bus, reading: _Reading, *, follow: bool) -> AsyncIterator[Stored | None]:
    stream, inbox, reconnected = reading.stream, Inbox(), asyncio.Event()
    beat = heartbeat(bus)

    def lose() -> None:
        reconnected.set()
        inbox.wake()

    with bus.on_reconnect(lose):
        async with inbox.open(bus):
            newest = await bus.newest(stream, reading.filters, reading.since)
            name = inbox.subject.rsplit(".", 1)[-1]
            config = reading.config(name, inbox.subject, beat)
            request = {"stream_name": stream, "config": config, "action": "create"}
            pending = int((await bus.api(f"CONSUMER.CREATE.{stream}.{name}", request))["num_pending"])
            progress = Progress(stream, pending, newest)
            try:
                if progress.completed():
                    yield None
                while follow or not progress.told:
                    messages = await inbox.batch(_LAG if progress.behind else beat * 2.5)
                    if reconnected.is_set() or (messages is None and not progress.behind):
                        raise progress.lost()
                    if progress.behind and not messages:
                        progress.newest = await bus.newest(stream, reading.filters, reading.since)
                        progress.check_patience(beat * 2.5)
                    messages = messages or []
                    for message in messages:
                        if message.reply.startswith("$JS.ACK."):
                            progress.take(message)
                            if not answers.is_forged(message.subject, message.headers or {}):
                                yield Delivery(bus, message).stored._replace(time=_time(message))
                        else:
                            await _flow(bus, message)
                            progress.hear(message.headers or {})
                        if progress.completed():
                            yield None
            finally:
                await _forget(bus, stream, name)


async def _flow(bus: Bus, message: Msg) -> None:
    """Answer the server's flow control, so that it goes on sending."""
    reply = message.reply or (message.headers or {}).get("Nats-Consumer-Stalled", "")
    if reply:
        with translated("flow control"):
            await bus.client.publish(reply, b"")


async def _forget(bus: Bus, stream: str, name: str) -> None:
    try:
        await remove(bus, stream, name)
    except WindowboxError:
        logger.debug("consumer %s is not deleted; the server deletes it when it is inactive", name)


def heartbeat(bus: Bus) -> float:
    """Seconds between two signs of life of a consumer. In a cluster its server may die, and not ours.

    A reading from which messages are deleted meanwhile ends with the next sign.
    """
    return 2.0 if bus.clustered else 5.0


def _time(message: Msg) -> str:
    return message.reply.split(".")[-2]
