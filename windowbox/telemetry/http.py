"""/metrics, /healthz and /readyz of a process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from windowbox.errors import Malformed


class Health(NamedTuple):
    """What /healthz answers."""

    well: bool = True
    words: str = "ok"


@contextlib.asynccontextmanager
async def served(
    address: str,
    ready: Callable[[], bool],
    refresh: Callable[[], Awaitable[None]],
    health: Callable[[], Health] = lambda: Health(),
) -> AsyncIterator[str]:
    """Serve at `host:port` (port 0: any); yields the bound address.

    `refresh` runs before each scrape. /healthz fails only for failures that a restart of the process cures.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise Malformed(
            f"setting metrics {address!r} is not host:port; write 127.0.0.1:9101, or port 0 for any"
        )

    async def metrics(_: web.Request) -> web.Response:
        await refresh()
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        found = health()
        return web.Response(text=f"{found.words}\n", status=200 if found.well else 503)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="not ready\n")

    application = web.Application()
    application.add_routes(
        [web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host.strip("[]"), int(port))
        try:
            await site.start()
        except OSError as error:
            raise Malformed(
                f"setting metrics: cannot listen on {address}: {error}; choose a free port, or 0 for any"
            ) from error
        bound = runner.addresses[0]
        yield f"{host}:{bound[1]}"
    finally:
        await runner.cleanup()
