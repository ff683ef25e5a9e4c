"""A client of NATS, nats-py's with fewer tasks, and the requests that are sent over it.

nats-py hands each message to a task by a queue, and each flush to another task. An object passes here some
twenty times, and most messages come alone, so that both tasks wake for each of them. A request takes a third
less CPU than nats-py's own: `python -m tools.bench.bus.transport`; decision 30 has the figures for a record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.protocol.parser import Parser

from bus.transport import answers
from windowbox.errors import Malformed

logger = logging.getLogger(__name__)

Listener = Callable[[Msg], None]

_ORIGIN = f"\r\n{answers.ORIGIN}:".encode()
_VERSION = len("NATS/1.0")
_CODE = slice(_VERSION + 1, _VERSION + 4)
_UNSENT = 1 << 16
"""Bytes that the socket has not taken yet, above which senders have to wait."""
_NO_RESPONDERS = "503"
_LOOK, _MANY = 0.1, 1000
"""Seconds over which messages are counted, and from how many in a second on they are many."""
_GATHER = 0.003
"""Seconds between two reads then. A single object passes some forty messages, too few to be slowed down."""
_WATCH = 0.05
"""Seconds between two looks at requests that wait for longer than their timeout."""
_LONGEST_SUBJECT = 3840
"""The server ends a connection whose line is longer than 4,096 bytes: with subject, inbox and sizes."""


class PacedParser(Parser):
    """Lets messages gather where many come: each wakes the process, which costs more than to handle it."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.reads = 0
        self._looked = time.monotonic()
        self._before = 0
        self._busy = False

    async def parse(self, data: bytes = b"") -> None:
        self.reads += 1
        await super().parse(data)
        if (passed := time.monotonic() - self._looked) > _LOOK:
            messages = self.nc.stats["in_msgs"]
            self._busy = messages - self._before > _MANY * passed
            self._looked, self._before = time.monotonic(), messages
        if self._busy:
            await asyncio.sleep(_GATHER)


class DirectClient(Client):
    """Calls listeners where messages are read, and writes at the end of the event loop's turn."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = PacedParser(self)
        self._listeners: dict[int, Listener] = {}
        self._writing = False

    async def listen(self, subject: str, act: Listener) -> Subscription:
        """Call `act` with each message of a new inbox. It must return at once.

        No client knows the inbox before the server does, so no message can come before its listener.
        """
        subscription = await self.subscribe(subject, pending_msgs_limit=-1, pending_bytes_limit=-1)
        self._listeners[subscription._id] = act
        return subscription

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._listeners.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        listener = self._listeners.get(sid)
        if listener is None:
            await super()._process_msg(sid, subject, reply, data, headers or b"")
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        try:
            listener(
                Msg(
                    _client=self,
                    subject=subject.decode(),
                    reply=reply.decode(),
                    data=data,
                    headers=parsed(headers) if headers else None,
                    _sid=sid,
                )
            )
        except Exception:
            # A subject that is no UTF-8, or a bug of the listener. nats-py would stop reading for all.
            logger.exception("a message to %r is skipped", subject)

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message with the next write; what is unusual, or while not connected, as nats-py does."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) if headers else ""
        unusual = not subject or len(payload) > self._max_payload
        # A value with a line break would begin another header.
        unusual = unusual or (headers is not None and _breaks(lines, len(headers)))
        if unusual or self._status != Client.CONNECTED or self._pending_data_size > _UNSENT:
            await super().publish(subject, payload, reply, headers)
            return
        if lines:
            block = f"NATS/1.0\r\n{lines}\r\n".encode()
            sizes = f"{len(block)} {len(block) + len(payload)}"
            command = b"HPUB %b\r\n%b%b\r\n" % (f"{subject} {reply} {sizes}".encode(), block, payload)
        else:
            command = b"PUB %b\r\n%b\r\n" % (f"{subject} {reply} {len(payload)}".encode(), payload)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        self._pending.append(command)
        self._pending_data_size += len(command)
        self._write_soon()

    async def _process_pong(self) -> None:
        """Take the server's answer to a PING.

        Whoever waits for it may have given up. nats-py raises InvalidStateError then, which ends its reading.
        """
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """Write pending data at the end of this turn of the event loop, with all that the turn sends."""
        if force_flush:
            return await super()._flush_pending(force_flush=True)
        if self.is_connected:
            self._write_soon()
        return None

    def _write_soon(self) -> None:
        if not self._writing:
            self._writing = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._writing = False
        if not self._pending or not self.is_connected or not isinstance(self._transport, TcpTransport):
            return  # nats-py sends what is pending when the connection is back
        writer = self._transport._io_writer
        if writer is None or writer.transport.is_closing():
            return
        if writer.transport.get_write_buffer_size() < _UNSENT:
            writer.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        elif self._flush_queue and self._flush_queue.empty():
            # nats-py's task waits until the socket has room, and senders wait for that task.
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())


class _Asked(NamedTuple):
    """A request that waits for its response, until a monotonic time."""

    answer: asyncio.Future[Msg]
    until: float


class Requests:
    """Requests over one connection. All responses arrive at one inbox; the last token names the request."""

    def __init__(self, client: DirectClient) -> None:
        self._client = client
        self._inbox = ""
        self._opening = asyncio.Lock()
        self._numbers = count()
        self._waiting: dict[str, _Asked] = {}
        self._watch: asyncio.TimerHandle | None = None
        """Gives up what was not answered in time. A timer for each request would cost a tenth of it."""
        self.answered = 0.0
        """When the newest request that has a response was sent, by the monotonic clock."""

    async def ask(
        self, subject: str, data: bytes, timeout: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """The response to one request. Raises nats-py's errors."""
        if len(subject) > _LONGEST_SUBJECT:
            raise Malformed(f"subject {subject[:80]}… has {len(subject)} characters, too many for the bus")
        if not self._inbox:
            async with self._opening:
                if not self._inbox:
                    inbox = self._client.new_inbox() + "."
                    await self._client.listen(inbox + "*", self._take)
                    self._inbox = inbox
        loop = asyncio.get_running_loop()
        number, asked = str(next(self._numbers)), time.monotonic()
        answer = loop.create_future()
        self._waiting[number] = _Asked(answer, asked + timeout)
        if self._watch is None:
            self._watch = loop.call_later(_WATCH, self._give_up)
        try:
            await self._client.publish(subject, data, self._inbox + number, headers)
            found: Msg = await answer
        finally:
            del self._waiting[number]
        if not found.data and found.headers and found.headers.get("Status") == _NO_RESPONDERS:
            raise nats.errors.NoRespondersError
        self.answered = max(self.answered, asked)
        return found

    def lose(self) -> None:
        """Fail all pending requests: the connection is lost, and their responses with it."""
        for asked in self._waiting.values():
            if not asked.answer.done():
                asked.answer.set_exception(nats.errors.ConnectionClosedError())

    def _take(self, message: Msg) -> None:
        asked = self._waiting.get(message.subject.rpartition(".")[2])
        if asked and not asked.answer.done():
            asked.answer.set_result(message)

    def _give_up(self) -> None:
        now = time.monotonic()
        for asked in self._waiting.values():
            if asked.until <= now and not asked.answer.done():
                asked.answer.set_exception(nats.errors.TimeoutError())
        waits = bool(self._waiting)
        self._watch = asyncio.get_running_loop().call_later(_WATCH, self._give_up) if waits else None


def _breaks(lines: str, count: int) -> bool:
    return lines.count("\n") != count or lines.count("\r") != count


def parsed(block: bytes) -> dict[str, str]:
    """The headers of a message, with the status and description that a server may put in front."""
    first, *lines = block.decode("utf-8", "replace").split("\r\n")
    found: dict[str, str] = {}
    if (status := first[_CODE].strip()).isdigit():
        found["Status"] = status
        if description := first[_CODE.stop :].strip():
            found["Description"] = description
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip()] = value.strip()
    if block.count(_ORIGIN) > 1:
        found[answers.FORGED] = "1"
    return found
