"""One persistent TCP connection to a name server, with many messages in flight."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import cast

import dns.exception
from dns.message import Message
from dns.rcode import Rcode

from windowbox.clients.nameserver.tsig import TsigKey, accepted, parsed, signed, verified
from windowbox.errors import Malformed, TransientError, Unreachable

CONNECT_TIMEOUT = 5.0
_MOST_WAITING = 0x8000
"""Half of all message ids."""
_LONGEST = 0xFFFF
"""Octets of a message."""
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


class TimedOut(Unreachable):
    """The server has not answered in time. It may still have applied the update."""


class _Replies:
    """The replies to messages that were sent together."""

    __slots__ = ("_left", "complete", "deadline", "wires")

    def __init__(self, count: int, deadline: float, complete: asyncio.Future[None]) -> None:
        self.wires = [b""] * count
        self.deadline = deadline
        self.complete = complete
        self._left = count

    def arrived(self, place: int, wire: bytes) -> None:
        self.wires[place] = wire
        self._left -= 1
        if not self._left and not self.complete.done():
            self.complete.set_result(None)


class Connection(asyncio.Protocol):
    """Matches replies to requests by message id, in any order.

    A reply that does not arrive in time ends the connection, so that a late one is not taken for another.
    """

    def __init__(self, server: str, key: TsigKey | None, timeout: float) -> None:
        self.server = server
        self.ended: asyncio.Future[Unreachable] = asyncio.get_running_loop().create_future()
        self.last_rtt = 0.0
        self.signs = key is not None
        self.plain_queries = True
        """Queries need no signature, as far as we know; with a key, updates always do."""
        self._key = key
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[_Replies, int]] = {}
        """By message id, the replies to which the one belongs, and its place among them, oldest first."""
        self._buffer = bytearray()
        self._last_id = 0
        self._watch: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def alive(self) -> bool:
        return not self.ended.done()

    async def exchange(self, requests: Sequence[Message]) -> list[Message]:
        """Send all `requests` together, and return their replies in the same order.

        Raises Unreachable if the connection ends first, ZoneFailed if a reply's signature is wrong, and
        Malformed, before anything is sent, if a request does not fit a message.
        """
        frames: list[bytes] = []
        for number, request in zip(self._free_ids(len(requests)), requests, strict=True):
            request.id = number
            request.tsig = None
            if self._key:
                request.use_tsig(self._key.ring)
            try:
                frames.append(request.to_wire())
            except dns.exception.TooBig as error:
                raise Malformed("a DNS message is too long: spread the values") from error
        wires = await self._sent(frames)
        return [self._read(wire, request, self._key) for wire, request in zip(wires, requests, strict=True)]

    async def exchange_octets(self, requests: Sequence[bytes]) -> list[bytes]:
        """Send all `requests` together, with ids in place of their own, and return the replies, unread.

        Raises Unreachable if the connection ends first.
        """
        numbers = self._free_ids(len(requests))
        frames = [
            number.to_bytes(2, "big") + request[2:] for number, request in zip(numbers, requests, strict=True)
        ]
        return await self._sent(frames)

    async def update(self, messages: Sequence[bytes]) -> list[Rcode]:
        """Send update messages together, and return what the server says about each, in the same order.

        Raises the same as `exchange`.
        """
        sent: list[tuple[bytes, bytes]] = []
        for number, message in zip(self._free_ids(len(messages)), messages, strict=True):
            numbered = number.to_bytes(2, "big") + message[2:]
            sent.append(signed(numbered, self._key) if self._key else (numbered, b""))
            if len(sent[-1][0]) > _LONGEST:
                raise Malformed("a DNS message is too long: spread the values")
        wires = await self._sent([message for message, _ in sent])
        return [
            Rcode.NOERROR
            if self._key and accepted(wire, message, mac, self._key)
            else self._read(wire, parsed(message, self._key), self._key).rcode()
            for wire, (message, mac) in zip(wires, sent, strict=True)
        ]

    def read(self, wire: bytes, query: Message) -> Message:
        """The reply to a query that was sent in octets. Raises Unreachable if it cannot be one."""
        query.id = int.from_bytes(wire[:2], "big")  # replies were matched by it
        return self._read(wire, query, None)

    def _read(self, wire: bytes, request: Message, key: TsigKey | None) -> Message:
        reply = verified(wire, request, key, self.server)
        if not request.is_response(reply):
            raise Unreachable(f"{self.server} sent a reply that matches no request")
        return reply

    def _free_ids(self, count: int) -> list[int]:
        if not count:
            return []
        if self._transport is None or not self.alive:
            raise self._ending()
        if len(self._waiting) + count > _MOST_WAITING:
            raise TransientError(f"too many questions to {self.server} at once")
        free: list[int] = []
        while len(free) < count:
            self._last_id = (self._last_id + 1) & 0xFFFF
            if self._last_id not in self._waiting:
                free.append(self._last_id)
        return free

    async def _sent(self, requests: Sequence[bytes]) -> list[bytes]:
        """The replies to `requests`, which bear free ids and have to be sent at once."""
        if not requests:
            return []
        assert self._transport is not None
        started = self._loop.time()
        replies = _Replies(len(requests), started + self._timeout, self._loop.create_future())
        for place, request in enumerate(requests):
            self._waiting[int.from_bytes(request[:2], "big")] = (replies, place)
        self._transport.write(b"".join(len(one).to_bytes(2, "big") + one for one in requests))
        if self._watch is None:
            self._watch = self._loop.call_at(replies.deadline, self._check_deadline)
        await replies.complete
        self.last_rtt = self._loop.time() - started
        return replies.wires

    def close(self, reason: Unreachable | None = None) -> None:
        self._end(reason or Unreachable(f"the connection to {self.server} was closed"))

    def _check_deadline(self) -> None:
        self._watch = None
        oldest, _ = next(iter(self._waiting.values()), (None, 0))
        if oldest is None:
            return
        if oldest.deadline <= self._loop.time():
            self._end(
                TimedOut(
                    f"no answer from {self.server} within {self._timeout:g} s, what became of it is unknown"
                )
            )
        else:
            self._watch = self._loop.call_at(oldest.deadline, self._check_deadline)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._acknowledge_quickly()

    def data_received(self, data: bytes) -> None:
        self._acknowledge_quickly()
        buffer = self._buffer
        buffer += data
        place = 0
        while len(buffer) - place >= 2:
            end = place + 2 + int.from_bytes(buffer[place : place + 2], "big")
            if len(buffer) < end:
                break
            wire = bytes(buffer[place + 2 : end])
            place = end
            waiting = self._waiting.pop(int.from_bytes(wire[:2], "big"), None)
            if len(wire) < 12 or waiting is None:
                self._end(Unreachable(f"{self.server} sent a reply that matches no request"))
                break
            replies, at = waiting
            replies.arrived(at, wire)
        del buffer[:place]

    def _acknowledge_quickly(self) -> None:
        # The kernel falls back to delayed acknowledgements by itself; together with the server's Nagle
        # algorithm each of them would cost 40 ms.
        if _QUICKACK is not None and self._transport is not None:
            with contextlib.suppress(OSError):
                sock = self._transport.get_extra_info("socket")
                sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def eof_received(self) -> None:
        self._end(Unreachable(f"{self.server} closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Unreachable(f"the connection to {self.server} broke: {exc or 'closed'}"))

    def _end(self, reason: Unreachable) -> None:
        if self.ended.done():
            return
        self.ended.set_result(reason)
        if self._watch:
            self._watch.cancel()
        waiting, self._waiting = self._waiting, {}
        for replies in {id(replies): replies for replies, _ in waiting.values()}.values():
            if not replies.complete.done():
                replies.complete.set_exception(self._ending())
        if self._transport:
            self._transport.abort()

    def _ending(self) -> Unreachable:
        """A new error for each waiter: a shared one would collect all their tracebacks."""
        reason = self.ended.result() if self.ended.done() else Unreachable(f"{self.server} is not connected")
        return type(reason)(str(reason))


async def connected(host: str, port: int, server: str, key: TsigKey | None, timeout: float) -> Connection:
    """A new connection to one address. Raises Unreachable, with the server as it is configured."""
    connection = Connection(server, key, timeout)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
    except TimeoutError as error:
        raise Unreachable(f"cannot connect to {server}: no answer within {CONNECT_TIMEOUT:g} s") from error
    except OSError as error:
        raise Unreachable(f"cannot connect to {server}: {error.strerror or error}") from error
    return connection


async def addresses(host: str, port: int) -> list[tuple[str, int]]:
    """All addresses of a host, in the order that the system prefers. Raises Unreachable."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise Unreachable(f"cannot find {host}: no answer within {CONNECT_TIMEOUT:g} s") from error
    except OSError as error:
        raise Unreachable(f"cannot find {host}: {error.strerror or error}") from error
    return list(dict.fromkeys((address[4][0], port) for address in found if isinstance(address[4][0], str)))
