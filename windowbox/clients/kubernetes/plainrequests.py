"""Requests with one whole answer to an API server, over kept connections, with what they need of HTTP/1.1.

aiohttp takes three times the CPU for such a request.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import aiohappyeyeballs

_IDLE = 15.0
"""Seconds for which an unused connection is kept."""
_LONGEST_HEAD = 1 << 16
_CHUNK = re.compile(rb"[0-9a-fA-F]{1,8}")
_HAPPY_EYEBALLS = 0.25
_REPEATED = frozenset({"GET", "PUT", "DELETE"})
"""Methods whose requests are repeated where the server has ended a kept connection meanwhile."""


class Answer(NamedTuple):
    """The answer to a request. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Overlong(Exception):
    """The answer has more bytes than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class Connections:
    """Connections to one server, each for one request at a time."""

    def __init__(self, host: str, tls: ssl.SSLContext, most: int) -> None:
        parts = urlsplit(host)
        self._tls = tls if parts.scheme == "https" else None
        self._name = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._host = parts.netloc.rpartition("@")[2]
        self._room = asyncio.Semaphore(most)
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._closed = False
        self._sweep: asyncio.TimerHandle | None = None

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, limit: Callable[[int], int]
    ) -> Answer:
        """The answer to one request. `limit` gives the most bytes of an answer with a status.

        Raises OSError, TimeoutError of the caller, and Overlong.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise ConnectionError("a header holds a line break")
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\nHost: {self._host}\r\n{lines}"
        if body or method not in ("GET", "DELETE"):
            head += f"Content-Length: {len(body)}\r\n"
        request = b"%b\r\n%b" % (head.encode("ascii"), body)
        async with self._room:
            while True:
                kept = self._kept()
                connection = kept or await self._connected()
                try:
                    return await self._exchanged(connection, request, limit)
                except ConnectionError:
                    if not kept or connection.heard or self._closed or method not in _REPEATED:
                        raise

    async def _exchanged(
        self, connection: _Connection, request: bytes, limit: Callable[[int], int]
    ) -> Answer:
        self._busy.add(connection)
        try:
            answer = await connection.ask(request, limit)
        except BaseException:
            connection.abort()  # what is left of the answer belongs to no other request
            raise
        finally:
            self._busy.discard(connection)
        if connection.reusable and not self._closed:
            connection.since = time.monotonic()
            self._idle.append(connection)
            if self._sweep is None:
                self._sweep = asyncio.get_running_loop().call_later(_IDLE, self._close_idle)
        else:
            connection.abort()
        return answer

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and time.monotonic() - connection.since < _IDLE:
                return connection
            connection.abort()
        return None

    async def _connected(self) -> _Connection:
        if self._closed:
            raise ConnectionError("closed")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)
        opened = await aiohappyeyeballs.start_connection(
            found, happy_eyeballs_delay=_HAPPY_EYEBALLS, interleave=1, loop=loop
        )
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            named = self._name if self._tls else None
            _, connection = await loop.create_connection(
                _Connection, sock=opened, ssl=self._tls, server_hostname=named
            )
        except BaseException:
            opened.close()
            raise
        return connection

    def _close_idle(self) -> None:
        """Close the connections that nobody has used for a while; the oldest are the first."""
        now, self._sweep = time.monotonic(), None
        while self._idle and (not self._idle[0].reusable or now - self._idle[0].since >= _IDLE):
            self._idle.pop(0).abort()
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(_IDLE, self._close_idle)

    def close(self) -> None:
        """End all connections: requests that wait for an answer fail."""
        self._closed = True
        if self._sweep:
            self._sweep.cancel()
        for connection in [*self._idle, *self._busy]:
            connection.abort()
        self._idle.clear()


class _Connection(asyncio.Protocol):
    """One connection: writes a request, and reads its answer."""

    def __init__(self) -> None:
        self.since = 0.0
        """Since when it is unused."""
        self.heard = False
        """Whether something of the answer has come."""
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[Answer] | None = None
        self._limit: Callable[[int], int] = lambda _: 0
        self._buffer = bytearray()
        self._head: tuple[int, dict[str, str]] | None = None
        self._chunks = Chunks()
        self._ends = False
        """Whether the server ends the connection after this answer."""

    @property
    def reusable(self) -> bool:
        return bool(self._transport and not self._transport.is_closing() and not self._ends)

    async def ask(self, request: bytes, limit: Callable[[int], int]) -> Answer:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the server has ended the connection")
        self._buffer.clear()
        self._head, self._chunks, self.heard, self._limit = None, Chunks(), False, limit
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answered
        finally:
            self._answered = None

    def abort(self) -> None:
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: that of uvloop with TLS is of no class of asyncio.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answered is None or self._answered.done():
            self.abort()  # nobody has asked for it
            return
        self.heard = True
        self._buffer += data
        try:
            answer = self._read(ended=False)
        except (Overlong, ConnectionError) as error:
            self._answered.set_exception(error)
            self.abort()
            return
        if answer:
            self._answered.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answered is None or self._answered.done():
            return
        try:
            answer = self._read(ended=True) if self.heard and error is None else None
        except (Overlong, ConnectionError) as why:
            self._answered.set_exception(why)
            return
        if answer:
            self._answered.set_result(answer)
        else:
            lost = ConnectionResetError("the server has ended the connection before its answer")
            lost.__cause__ = error
            self._answered.set_exception(lost)

    def _read(self, *, ended: bool) -> Answer | None:
        """The answer, once all of it has come."""
        while self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > _LONGEST_HEAD:
                    raise ConnectionError("the head of the answer is too long")
                return None
            head = parsed(bytes(self._buffer[:end]))
            del self._buffer[: end + 4]
            if head[0] >= 200:  # others announce an answer that follows
                self._head = head
                self._ends = "close" in head[1].get("connection", "").lower()
        status, headers = self._head
        limit = self._limit(status)
        if status in (204, 304):
            return Answer(status, headers, b"")
        if "chunked" in headers.get("transfer-encoding", "").lower():
            body = self._chunks.take(self._buffer, limit)
            if body is None:
                return None
            self._ends = self._ends or bool(self._buffer)
            return Answer(status, headers, body)
        length = headers.get("content-length")
        if length is not None and not (length.isascii() and length.isdigit()):
            raise ConnectionError("the length of the answer is no number")
        if max(len(self._buffer), int(length or 0)) > limit:
            raise Overlong(limit)
        if length is None:
            self._ends = True
            return Answer(status, headers, bytes(self._buffer)) if ended else None
        if len(self._buffer) < int(length):
            return None
        self._ends = self._ends or len(self._buffer) > int(length)
        return Answer(status, headers, bytes(self._buffer[: int(length)]))


def parsed(head: bytes) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer. ConnectionError if they are none."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not (rest[:3].isascii() and rest[:3].isdigit()):
        raise ConnectionError("the answer is not HTTP")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name.strip() != name:
            raise ConnectionError("a header of the answer cannot be read")
        headers[name.lower()] = value.strip()
    return int(rest[:3]), headers


class Chunks:
    """The body of an answer in chunks, taken out of a buffer as they come."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._last = False

    def take(self, buffer: bytearray, limit: int) -> bytes | None:
        """The whole body; None until its end has come. Overlong beyond the limit."""
        while (end := buffer.find(b"\r\n")) >= 0:
            if self._last:  # trailers, and at last an empty line
                del buffer[: end + 2]
                if end == 0:
                    return b"".join(self._parts)
                continue
            number = bytes(buffer[:end]).partition(b";")[0].strip()
            if not _CHUNK.fullmatch(number):
                raise ConnectionError("a chunk of the answer has no length")
            length = int(number, 16)
            if self._size + length > limit:
                raise Overlong(limit)
            if length and len(buffer) < end + 2 + length + 2:
                return None
            self._last = length == 0
            self._size += length
            self._parts.append(bytes(buffer[end + 2 : end + 2 + length]))
            del buffer[: end + 2 + (length + 2 if length else 0)]
        if len(buffer) > _LONGEST_HEAD:
            raise ConnectionError("a chunk of the answer has no length")
        return None
