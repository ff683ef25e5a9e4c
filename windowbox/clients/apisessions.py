"""HTTP sessions with API servers."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from windowbox.clients.egress import Egress

_CONNECTIONS = 32


@contextlib.asynccontextmanager
async def opened(
    host: str, proxy: str | None, tls: ssl.SSLContext, egress: Egress | None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with keep-alive; with `egress`, to permitted addresses only."""
    ours = None if proxy else _proxy(host)
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
    ) as session:
        yield session


def _proxy(host: str) -> str | None:
    """The proxy that the environment asks for."""
    parts = urlsplit(host)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
