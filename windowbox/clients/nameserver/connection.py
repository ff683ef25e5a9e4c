"""One kept TCP connection to a name server, on which many messages wait for their replies at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import cast

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.signing import Signer, TsigKey
from windowbox.errors import TransientError, Unreachable

CONNECT_TIMEOUT = 5.0
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


class TimedOut(Unreachable):
    """The server has not answered in time. It may still have done what it was asked."""


class _Group:
    """Messages sent together, whose replies are awaited together."""

    __slots__ = ("future", "missing", "replies")

    def __init__(self, size: int, future: asyncio.Future[list[bytes]]) -> None:
        self.replies = [b""] * size
        self.missing = size
        self.future = future

    def take(self, index: int, reply: bytes) -> None:
        self.replies[index] = reply
        self.missing -= 1
        if not self.missing and not self.future.done():
            self.future.set_result(self.replies)


class Connection(asyncio.Protocol):
    """Replies find their requests by message id, in whatever order they come.

    A reply that does not come in time ends the connection: should it come later, nobody could mistake it.
    """

    def __init__(self, server: str, key: TsigKey | None, timeout: float) -> None:
        self.server = server
        self.ended: asyncio.Future[Unreachable] = asyncio.get_running_loop().create_future()
        self.last_rtt = 0.0
        self.plain_queries = key is not None
        """Queries need no signature, as far as we know; updates always do if there is a key."""
        self._signer = Signer(key, server) if key else None
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[_Group, int, float]] = {}
        self._buffer = bytearray()
        self._last_id = 0
        self._watch: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def alive(self) -> bool:
        return not self.ended.done()

    async def exchange(self, requests: Sequence[bytes], *, signed: bool = True) -> list[messages.Reply]:
        """Send all `requests` at once; their replies, in the same order, when all are there.

        Raises Unreachable if the connection ends before, ZoneFailed if a reply's signature is not right.
        """
        if not requests:
            return []
        if self._transport is None or not self.alive:
            raise self._ending()
        started = self._loop.time()
        group = _Group(len(requests), self._loop.create_future())
        signer = self._signer if signed else None
        codes = self._send(requests, group, started + self._timeout, signer)
        wires = await group.future
        self.last_rtt = self._loop.time() - started
        if signer:
            for wire, code in zip(wires, codes, strict=True):
                signer.verify(wire, code)
        try:
            return [messages.parsed(wire) for wire in wires]
        except ValueError as error:
            raise Unreachable(f"{self.server} answers what nobody can read: {error}") from error

    def close(self, reason: Unreachable | None = None) -> None:
        self._end(reason or Unreachable(f"the connection to {self.server} was closed"))

    def _send(
        self, requests: Sequence[bytes], group: _Group, deadline: float, signer: Signer | None
    ) -> list[bytes]:
        frames: list[bytes] = []
        codes: list[bytes] = []
        for index, request in enumerate(requests):
            message_id = self._free_id()
            wire = message_id.to_bytes(2, "big") + request[2:]
            if signer:
                wire, code = signer.sign(wire)
                codes.append(code)
            self._waiting[message_id] = (group, index, deadline)
            frames += (len(wire).to_bytes(2, "big"), wire)
        assert self._transport is not None
        self._transport.write(b"".join(frames))
        if self._watch is None:
            self._watch = self._loop.call_at(deadline, self._check)
        return codes

    def _free_id(self) -> int:
        if len(self._waiting) > 0x8000:
            raise TransientError(f"too many questions to {self.server} at once")
        while True:
            self._last_id = (self._last_id + 1) & 0xFFFF
            if self._last_id not in self._waiting:
                return self._last_id

    def _check(self) -> None:
        """One timer watches all requests: the oldest is the first in the dictionary."""
        self._watch = None
        oldest = next(iter(self._waiting.values()), None)
        if oldest is None:
            return
        if oldest[2] <= self._loop.time():
            self._end(
                TimedOut(
                    f"no answer from {self.server} within {self._timeout:g} s, what became of it is unknown"
                )
            )
        else:
            self._watch = self._loop.call_at(oldest[2], self._check)

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
            end = place + 2 + (buffer[place] << 8 | buffer[place + 1])
            if len(buffer) < end:
                break
            self._dispatch(bytes(buffer[place + 2 : end]))
            place = end
        del buffer[:place]

    def _dispatch(self, reply: bytes) -> None:
        waiting = self._waiting.pop(int.from_bytes(reply[:2], "big"), None)
        if len(reply) < 12 or waiting is None:
            self._end(Unreachable(f"{self.server} answers what nobody asked"))
            return
        group, index, _ = waiting
        group.take(index, reply)

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
        for group, _, _ in waiting.values():
            if not group.future.done():
                group.future.set_exception(self._ending())
        if self._transport:
            self._transport.abort()

    def _ending(self) -> Unreachable:
        reason = self.ended.result() if self.ended.done() else Unreachable(f"{self.server} is not connected")
        return type(reason)(str(reason))


async def connected(host: str, port: int, server: str, key: TsigKey | None, timeout: float) -> Connection:
    """A new connection to one address. Raises Unreachable, naming the server as it is configured."""
    loop = asyncio.get_running_loop()
    connection = Connection(server, key, timeout)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await loop.create_connection(lambda: connection, host, port)
    except TimeoutError as error:
        raise Unreachable(f"cannot connect to {server}: no answer within {CONNECT_TIMEOUT:g} s") from error
    except OSError as error:
        raise Unreachable(f"cannot connect to {server}: {error.strerror or error}") from error
    return connection


async def addresses(host: str, port: int) -> list[tuple[str, int]]:
    """All addresses of a host, the system's favourite first. Raises Unreachable."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise Unreachable(f"cannot find {host}: no answer within {CONNECT_TIMEOUT:g} s") from error
    except OSError as error:
        raise Unreachable(f"cannot find {host}: {error.strerror or error}") from error
    return list(dict.fromkeys((address[4][0], port) for address in found if isinstance(address[4][0], str)))
