"""/metrics, /healthz and /readyz of a process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from windowbox.errors import Malformed


class Health(NamedTuple):
    """The answer of /healthz."""

    well: bool = True
    words: str = "ok"


@contextlib.asynccontextmanager
async def served(
    address: str,
    ready: Callable[[], bool],
    refresh: Callable[[], Awaitable[None]] | None = None,
    health: Callable[[], Health] = lambda: Health(),
    *,
    probes: str = "",
) -> AsyncIterator[str]:
    """Serve at `host:port` (port 0: any), and at `probes`, if given; yields the bound address.

    `refresh` runs before each scrape. /healthz fails only for failures that a restart of the process cures.
    """

    logging.getLogger("aiohttp.server").addFilter(is_our_error)

    async def metrics(_: web.Request) -> web.Response:
        if refresh:
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
    # aiohttp reads the bodies of requests to their end. Compressed ones could take seconds to unpack.
    runner = web.AppRunner(application, access_log=None, auto_decompress=False)
    await runner.setup()
    try:
        host = await _listen(runner, "metrics", address)
        if probes:
            await _listen(runner, "probes", probes)
        yield f"{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def is_our_error(record: logging.LogRecord) -> bool:
    """Whether the server is at fault. aiohttp also logs each request that is not HTTP, and quotes it."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


async def _listen(runner: web.AppRunner, setting: str, address: str) -> str:
    """Listen on the address of a setting. Returns its host."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise Malformed(
            f"setting {setting} {address!r} is not host:port; write 127.0.0.1:9101, or port 0 for any"
        )
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    except OSError as error:
        raise Malformed(
            f"setting {setting}: cannot listen on {address}: {error}; choose a free port, or 0 for any"
        ) from error
    return host
