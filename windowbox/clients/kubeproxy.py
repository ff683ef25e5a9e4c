"""Asking the kube-proxy of a node whether it is well, as load balancers do."""

from __future__ import annotations

import asyncio

from windowbox.models.loadbalancers import KUBE_PROXY_PORT

_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: windowbox\r\nConnection: close\r\n\r\n"
_TIMEOUT = 1.0
_TOO_LATE = 0.25
"""Seconds by which the end of a wait may be noticed late, before one has to suspect oneself."""


async def is_healthy(address: str) -> bool | None:
    """Whether it answers that it is. None if this process was too busy to tell."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + _TIMEOUT
    try:
        async with asyncio.timeout_at(limit):
            return await _status(address) == b"200"
    except TimeoutError:
        # Whoever was stopped for a while has not given the node its time.
        return False if loop.time() < limit + _TOO_LATE else None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
        return False


async def _status(address: str) -> bytes:
    reader, writer = await asyncio.open_connection(address, KUBE_PROXY_PORT)
    try:
        writer.write(_REQUEST)
        return (await reader.readuntil(b"\r\n")).split()[1]
    finally:
        writer.close()
