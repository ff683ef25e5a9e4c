"""Web servers on loopback, for what a test simulates over HTTP."""

from __future__ import annotations

import contextlib
import functools
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from sandbox.servers import certificates


class Identity(NamedTuple):
    """The certificate of a server on loopback, and the authority (PEM) that vouches for it."""

    tls: ssl.SSLContext
    authority: bytes


@functools.cache
def identity() -> Identity:
    """The identity that all servers of this process may share."""
    with tempfile.TemporaryDirectory() as folder:
        ca = certificates.authority(Path(folder))
        pair = certificates.server(ca, Path(folder), "server", ["127.0.0.1", "localhost"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        return Identity(context, ca.certificate.read_bytes())


@contextlib.asynccontextmanager
async def serving(
    *routes: web.RouteDef, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[str]:
    """Serve these routes on a port that the system chooses. Yields the URL."""
    application = web.Application(client_max_size=1 << 24)
    application.router.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, **({"shutdown_timeout": 0.1} | options))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
