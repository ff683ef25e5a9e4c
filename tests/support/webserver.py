"""Web servers on loopback, for what a test simulates over HTTP."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web


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
