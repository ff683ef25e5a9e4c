"""HTTP sessions with API servers."""

from __future__ import annotations

import contextlib
import ssl
import weakref
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from windowbox.clients.kubernetes.egress import Egress

_CONNECTIONS = 32


@contextlib.asynccontextmanager
async def opened(
    host: str, proxy: str | None, tls: ssl.SSLContext, egress: Egress | None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with keep-alive; with `egress`, to permitted addresses only.

    When it is closed, whoever reads a response of it gets an error.
    """
    ours = None if proxy else _proxy(host)
    responses = _Responses()
    connector = aiohttp.TCPConnector(
        limit=_CONNECTIONS,
        ssl=tls,
        # A proxy that our own environment names has rules of its own about where it leads.
        socket_factory=egress.socket if egress and not ours else None,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=proxy or ours,
        read_bufsize=1 << 18,
        auto_decompress=False,
        trace_configs=[responses.trace()],
    ) as session:
        try:
            yield session
        finally:
            responses.close()


class _Responses:
    """The responses of a session. aiohttp closes their connections, but tells none who reads from them."""

    def __init__(self) -> None:
        self._begun: weakref.WeakSet[aiohttp.ClientResponse] = weakref.WeakSet()
        self._closed = False

    def trace(self) -> aiohttp.TraceConfig:
        config = aiohttp.TraceConfig()
        config.on_request_end.append(self._add)
        return config

    async def _add(self, session: object, context: object, ended: aiohttp.TraceRequestEndParams) -> None:
        self._begun.add(ended.response)
        if self._closed:  # after its headers had arrived
            ended.response.close()

    def close(self) -> None:
        self._closed = True
        for response in list(self._begun):
            response.close()


def _proxy(host: str) -> str | None:
    """The proxy that the environment asks for."""
    parts = urlsplit(host)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
