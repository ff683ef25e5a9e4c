"""Limits of the webhook server: open connections, and memory for bodies of requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from ipaddress import IPv6Network
from typing import NamedTuple, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bus.leases import guard
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_MOST = 2048
"""Connections at once, if the process may have twice as many files open."""
_RESERVE = 4
"""This part of them, a quarter, is for peers that have been answered before."""
_MOST_ANSWERED = 1024
_HANDSHAKE = 5.0
_WAITING = 1024
"""Connections that the kernel keeps until we accept them."""
_TOGETHER = 64
"""Connections that are accepted at once, before other tasks run."""
_PAUSE = 1.0

_HELD = 128 << 20
"""Bytes of all bodies at once, beyond the free part of each."""
_HELD_BY_ONE = 32 << 20
"""Of those, bytes of one peer."""
_FREE = 64 << 10
"""Bytes of each body that do not count, so that small reviews are read while large ones wait."""
_MARKS = b"[{:,"
"""One for each list, field and value of JSON, apart from those in texts."""
_MOST_MARKS = 500_000
_BYTES_OF_MARK = 64
"""Two bytes of JSON make a list that takes sixty-four in memory."""
_LAG = 5.0
_RATE = 64 << 10
"""A body may be `_LAG` seconds behind one that comes with so many bytes per second."""


class Crowded(Exception):
    """There is no room for another large body."""


class BrokenOff(Exception):
    """The body breaks off, or its chunks are malformed."""


class Slow(Exception):
    """The body comes too slowly."""


def peer_of(host: str) -> str:
    """The peer with this address: networks of hosts give each one a /64 of IPv6."""
    return str(IPv6Network((host.partition("%")[0], 64), strict=False)) if ":" in host else host


class Connections:
    """Accepts connections, and shares their places among peers.

    At the limit, the peer with the most connections loses one to the new one: the oldest without a complete
    request. Peers that have not been answered yet leave a part of all places to the others.
    """

    def __init__(self, server: web.Server, tls: ssl.SSLContext) -> None:
        self._server = server
        self._tls = tls
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = _MOST if files == resource.RLIM_INFINITY else min(_MOST, files // 2)
        self._open: dict[str, dict[_Connection, None]] = {}
        """By peer, the oldest first."""
        self._working: set[asyncio.BaseProtocol] = set()
        """Of connections with a complete request that is not answered yet."""
        self._answered: dict[str, None] = {}
        """Peers that have been answered, the latest last."""
        self._greeting: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    @contextlib.asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Accept connections at all addresses of the host until the block ends; gives the port."""
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with contextlib.ExitStack() as stack:
            accepting = []
            for family, *_, (address, *_) in found:
                # With `reuse_port`, a second process on this host takes over when the first one ends.
                bound = socket.create_server(
                    (address, port), family=family, backlog=_WAITING, reuse_port=True
                )
                stack.enter_context(bound)
                bound.setblocking(False)
                port = bound.getsockname()[1]
                accepting.append(partial(self._accept, bound))
            tasks = [asyncio.create_task(guard.kept("connections", one)) for one in accepting]
            try:
                yield port
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(_TOGETHER):
                try:
                    accepted, address = await loop.sock_accept(listening)
                except ConnectionError:  # the caller is gone already
                    continue
                except OSError as error:
                    logger.warning("no connection can be accepted for %.0f s: %s", _PAUSE, error)
                    await asyncio.sleep(_PAUSE)
                    continue
                peer = peer_of(address[0])
                if not self._make_room(peer):
                    accepted.close()
                    continue
                made = _Connection(accepted, peer, self._server(), self._end)
                self._open.setdefault(peer, {})[made] = None
                greeting = asyncio.create_task(self._greet(made), name="webhooks: TLS handshake")
                self._greeting.add(greeting)
                greeting.add_done_callback(self._greeting.discard)
            await asyncio.sleep(0)

    def end_handshakes(self) -> None:
        """End the connections that aiohttp does not know yet."""
        for one in [one for theirs in self._open.values() for one in theirs if one.transport is None]:
            one.abort()

    @contextlib.contextmanager
    def working(self, request: web.Request) -> Iterator[None]:
        """The request is complete: its connection gives way only to those of peers with fewer."""
        self._working.add(request.protocol)
        try:
            yield
        finally:
            self._working.discard(request.protocol)

    def answered(self, request: web.Request) -> None:
        """Remember that the peer sends reviews."""
        peer = peer_of(request.remote or "")
        self._answered.pop(peer, None)
        self._answered[peer] = None
        if len(self._answered) > _MOST_ANSWERED:
            del self._answered[next(iter(self._answered))]

    def _make_room(self, peer: str) -> bool:
        """Whether a new connection of this peer has a place. At the limit, another one is closed for it."""
        rivals = {one: len(theirs) for one, theirs in self._open.items()}
        strangers = {one: size for one, size in rivals.items() if one not in self._answered}
        if peer not in self._answered and sum(strangers.values()) >= self._most - self._most // _RESERVE:
            rivals = strangers
        elif sum(rivals.values()) < self._most:
            return True
        metrics.reviewers_crowded.inc()
        largest, own = max(rivals, key=rivals.__getitem__), self._open.get(peer, {})
        theirs = self._open[largest] if rivals[largest] > len(own) else own
        closed = next((one for one in theirs if one.inner not in self._working), None)
        if closed is None:
            if theirs is own:
                return False
            closed = next(iter(theirs))
        closed.abort()
        return True

    async def _greet(self, made: _Connection) -> None:
        with contextlib.suppress(OSError):  # errors of TLS, too
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: made, made.accepted, ssl=self._tls, ssl_handshake_timeout=_HANDSHAKE
            )
        if made.transport is None:
            self._end(made)

    def _end(self, ended: _Connection) -> None:
        theirs = self._open.get(ended.peer, {})
        theirs.pop(ended, None)
        if not theirs:
            self._open.pop(ended.peer, None)


class _Connection(asyncio.Protocol):
    """A connection from its acceptance to its end. aiohttp's protocol has it after the handshake."""

    def __init__(
        self, accepted: socket.socket, peer: str, inner: asyncio.Protocol, end: Callable[[_Connection], None]
    ) -> None:
        self.accepted = accepted
        self.peer = peer
        self.inner = inner
        self.transport: asyncio.Transport | None = None
        self._end = end

    def abort(self) -> None:
        """End it now: a close would wait for the peer."""
        self._end(self)
        if self.transport:
            self.transport.abort()
        else:
            with contextlib.suppress(OSError):
                self.accepted.shutdown(socket.SHUT_RDWR)  # the handshake fails

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # that of uvloop is of no class of asyncio
        self.inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(self)
        self.inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


class Body(NamedTuple):
    """The body of a request."""

    content: bytes
    weight: int
    """The bytes that it takes in memory, decoded."""
    excess: str = ""
    """If it is too large: the limit. The content is incomplete then."""


class Bodies:
    """Reads bodies of requests, as many as fit into memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = Counter[str]()
        """Counted bytes by peer."""

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[Body]:
        """The body. Crowded if others hold the memory, Slow, or BrokenOff."""
        peer, body = peer_of(request.remote or ""), bytearray()
        marks = weight = counted = 0
        now = asyncio.get_running_loop().time
        end = now() + _LAG
        try:
            try:
                async with asyncio.timeout_at(end) as limit:
                    while part := await request.content.readany():
                        body += part
                        marks += sum(map(part.count, _MARKS))
                        weight = len(body) + _BYTES_OF_MARK * marks
                        end = min(end + len(part) / _RATE, now() + _LAG)
                        limit.reschedule(end)
                        more = max(weight - _FREE, 0) - counted
                        counted += more
                        self._held[peer] += more
                        if len(body) > self._limit or marks > _MOST_MARKS:
                            break
                        if more and (self._held[peer] > _HELD_BY_ONE or self._held.total() > _HELD):
                            raise Crowded
            except TimeoutError as error:
                raise Slow from error
            except (ConnectionError, web.RequestPayloadError, HttpProcessingError) as error:
                raise BrokenOff from error
            excess = f"{self._limit} bytes" if len(body) > self._limit else ""
            if marks > _MOST_MARKS:
                excess = f"{_MOST_MARKS} signs of {_MARKS.decode()}"
            yield Body(bytes(body), weight, excess)
        finally:
            self._held[peer] -= counted
            if not self._held[peer]:
                del self._held[peer]
