"""Consumers: durable ones that processes share, and ordered ones that read a stream once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, NamedTuple

from nats.aio.msg import Msg

from bus.transport import answers
from bus.transport.connection import ApiError, Bus, Headers, Since, Stored, translated
from windowbox.errors import Unreachable, WindowboxError

_LAG = 0.1
"""Seconds between checks whether a lagging server has caught up."""
_SLICE = 0.02
"""Seconds after which a reading yields to the event loop: its reader may compute much for each message."""
_CONSUMER_EXISTS = 10148
GROUP = "all"
"""The one group of pull requests of a ranked consumer: the server requires a name."""


class Delivery:
    """A message of a durable consumer, to be acknowledged before its ack wait is over."""

    __slots__ = ("_bus", "_message", "data", "headers", "number", "sequence", "subject", "time")

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
        self.time = int(tokens[at + 5]) / 1e9
        """When it was stored, by the server's clock."""

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
            "max_ack_pending": 4096,
            # After a last attempt, the server would keep the message and never deliver it again.
            "max_deliver": -1,
            "max_waiting": 512,
            "replay_policy": "instant",
        }


async def ensure(bus: Bus, consumer: Consumer, *, ranked: bool = False) -> None:
    """Create the consumer, or update it if it has another configuration."""
    subject = f"CONSUMER.CREATE.{consumer.stream}.{consumer.name}"
    request = {"stream_name": consumer.stream, "config": consumer.config(ranked=ranked)}
    if ranked:
        # An update of a ranked consumer ends the requests that wait there: update it only if it differs.
        try:
            await bus.api(subject, request | {"action": "create"})
            return
        except ApiError as error:
            if error.code != _CONSUMER_EXISTS:
                raise
    await bus.api(subject, request | {"action": ""})


class Inbox:
    """Receives messages of a subscription. Unlike nats-py's iterators it starts no task for each message."""

    def __init__(self) -> None:
        self.subject = ""
        self._messages: list[Msg] = []
        self._woken = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open(self, bus: Bus, *, several: bool = False) -> AsyncIterator[None]:
        """Subscribe to `subject`; with `several`, to all subjects with one more token."""
        self.subject = bus.client.new_inbox()
        self._messages = []

        def take(message: Msg) -> None:
            self._messages.append(message)
            self._woken.set()

        with translated("subscribe"):
            subscription = await bus.client.listen(self.subject + ".*" * several, take)
        try:
            yield
        finally:
            with contextlib.suppress(WindowboxError), translated("unsubscribe"):
                await subscription.unsubscribe()

    def wake(self) -> None:
        """Make `batch` return, even if it has no message."""
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
        start: dict[str, Any] = {"deliver_policy": "all" if self.history else "last_per_subject"}
        if isinstance(self.since, datetime):
            start = {"deliver_policy": "by_start_time", "opt_start_time": self.since.isoformat()}
        elif self.since:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": self.since}
        return {
            "name": name,
            "deliver_subject": inbox,
            "filter_subjects": self.filters,
            "ack_policy": "none",
            # The server slows down for a slow reader. It accepts this only together with heartbeats.
            "flow_control": True,
            "idle_heartbeat": int(heartbeat * 1e9),
            "headers_only": self.headers_only,
            "inactive_threshold": int(30e9),
            # On one server, in memory: a replicated consumer would cost a vote of all servers.
            "mem_storage": True,
            "num_replicas": 1,
            "max_deliver": 1,
            **start,
        }


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
            progress, turn = _Progress(stream, pending, newest), _Turn(bus.long_reading)
            try:
                if progress.completed():
                    yield None
                while follow or not progress.announced:
                    messages = await inbox.batch(_LAG if progress.behind else beat * 2.5)
                    if reconnected.is_set() or (messages is None and not progress.behind):
                        raise progress.lost()
                    if progress.behind and not messages:
                        progress.newest = await bus.newest(stream, reading.filters, reading.since)
                        progress.check_patience(beat * 2.5)
                    messages, began = messages or [], time.monotonic()
                    for message in messages:
                        if time.monotonic() - began > _SLICE:
                            await asyncio.sleep(0)
                            began = time.monotonic()
                        if message.reply.startswith("$JS.ACK."):
                            time_stored = progress.take(message)
                            if not answers.is_forged(message.subject, message.headers or {}):
                                yield Delivery(bus, message).stored._replace(time=time_stored)
                        else:
                            headers = message.headers or {}
                            # Flow control: without an answer the server sends no more.
                            if reply := message.reply or headers.get("Nats-Consumer-Stalled", ""):
                                await turn.take(unless=progress.announced)
                                with translated("flow control"):
                                    await bus.client.publish(reply, b"")
                            progress.hear(headers)
                        if progress.completed():
                            turn.end()
                            yield None
            finally:
                turn.end()
                with contextlib.suppress(WindowboxError):  # the server deletes it when it is inactive
                    await bus.api(f"CONSUMER.DELETE.{stream}.{name}")


class _Turn:
    """The turn of a long reading, until it has read what the stream held at its beginning."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._taken = False

    async def take(self, *, unless: bool) -> None:
        if not self._taken and not unless:
            await self._lock.acquire()
            self._taken = True

    def end(self) -> None:
        if self._taken:
            self._lock.release()
        self._taken = False


def heartbeat(bus: Bus) -> float:
    """Seconds between two heartbeats of a consumer: in a cluster its server may die, and ours live on.

    A reading from which messages are deleted meanwhile ends with the next heartbeat.
    """
    return 2.0 if bus.clustered else 5.0


class _Progress:
    """How far a reading has come, and whether messages are missing."""

    def __init__(self, stream: str, pending: int, newest: int) -> None:
        self.left = pending
        self.newest = newest
        """The snapshot is not complete before this sequence was reached."""
        self.announced = False
        self._stream = stream
        self._taken = 0
        self._reached = 0
        self._heard = time.monotonic()

    @property
    def behind(self) -> bool:
        """Whether this server has sent all its messages, but the stream's leader has more."""
        return self.left <= 0 and self._reached < self.newest and not self.announced

    def take(self, message: Msg) -> str:
        """Count a message. Returns when it was stored, in nanoseconds. Unreachable if one is missing."""
        *_, sequence, number, time_stored, _ = message.reply.split(".")
        if int(number) != self._taken + 1:
            raise self.lost()
        self._taken += 1
        self._reached = int(sequence)
        self.left -= 1
        self._heard = time.monotonic()
        return time_stored

    def hear(self, headers: Headers) -> None:
        """Take note of a heartbeat: perhaps the server has nothing more to send."""
        if "Nats-Last-Consumer" not in headers or "Nats-Consumer-Stalled" in headers:
            return
        if int(headers["Nats-Last-Consumer"]) != self._taken:
            raise self.lost()
        # Messages that were deleted during the reading never come.
        self.left = 0

    def completed(self) -> bool:
        """True once, when all messages that the stream held at the beginning have been read."""
        if self.left > 0 or self.announced or self.behind:
            return False
        self.announced = True
        return True

    def check_patience(self, limit: float) -> None:
        """Raise Unreachable if the server is silent or behind for too long: another one may serve better."""
        if time.monotonic() - self._heard > limit:
            raise self.lost()

    def lost(self) -> Unreachable:
        return Unreachable(f"lost the thread while reading {self._stream}")
