"""The health check of a node's kube-proxy, as load balancers do it."""

from __future__ import annotations

import asyncio
import errno

from windowbox.models.loadbalancers import KUBE_PROXY_PORT

_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: windowbox\r\nConnection: close\r\n\r\n"
_TIMEOUT = 1.0
_TOO_LATE = 0.25
"""Seconds by which a timeout may be noticed late, before this process counts as too busy to tell."""

_OUR_OWN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
"""What this host lacks, not the node."""


async def is_healthy(address: str) -> bool | None:
    """Whether the health check succeeds. None if this process was too busy, or lacked resources."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + _TIMEOUT
    try:
        async with asyncio.timeout_at(limit):
            return await _status(address) == b"200"
    except TimeoutError:
        # A process that was stopped or stalled has not waited long enough for the node.
        return False if loop.time() < limit + _TOO_LATE else None
    except OSError as error:
        return None if error.errno in _OUR_OWN else False
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
        return False


async def _status(address: str) -> bytes:
    reader, writer = await asyncio.open_connection(address, KUBE_PROXY_PORT)
    try:
        writer.write(_REQUEST)
        return (await reader.readuntil(b"\r\n")).split()[1]
    finally:
        writer.close()
