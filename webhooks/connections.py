"""Limits of the webhook server: open connections, and memory for bodies of requests."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Iterator

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

_MOST = 2048
"""Connections at once, if the process may have twice as many files open."""
_HELD = 128 << 20
"""Bytes of all bodies at once, beyond the free part of each."""
_FREE = 64 << 10
"""Bytes of each body that do not count, so that small reviews are read while large ones wait."""


class Crowded(Exception):
    """There is no room for another large body."""


class BrokenOff(Exception):
    """The caller disconnected before the end of its body."""


class Connections:
    """Makes a protocol for each connection.

    At the limit, the oldest idle connection is closed for a new one; if none is idle, the new one is refused.
    """

    def __init__(self, server: web.Server) -> None:
        self._server = server
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = _MOST if files == resource.RLIM_INFINITY else min(_MOST, files // 2)
        self._busy: set[RequestHandler] = set()

    def __call__(self) -> asyncio.Protocol:
        connections = self._server.connections
        if len(connections) < self._most:
            return self._server()
        for one in connections:  # the oldest first
            if one not in self._busy and one.transport and not one.transport.is_closing():
                one.transport.abort()  # a close would wait for the client
                return self._server()
        return _Refusal()

    @contextlib.contextmanager
    def busy(self, request: web.Request) -> Iterator[None]:
        """Do not count the connection of this request as idle."""
        self._busy.add(request.protocol)
        try:
            yield
        finally:
            self._busy.discard(request.protocol)


class _Refusal(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()


class Bodies:
    """Reads bodies of requests, as many as fit into memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes | None]:
        """The body; None if it exceeds the limit. Crowded if other bodies hold the memory."""
        parts, size, counted = [], 0, 0
        try:
            try:
                while part := await request.content.readany():
                    parts.append(part)
                    size += len(part)
                    more = max(size - _FREE, 0) - counted
                    counted += more
                    self._held += more
                    if size > self._limit:
                        break
                    if more and self._held > _HELD:
                        raise Crowded
            except ConnectionError as error:
                raise BrokenOff from error
            yield None if size > self._limit else b"".join(parts)
        finally:
            self._held -= counted
