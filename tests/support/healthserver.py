"""What a node's health check port answers."""

from __future__ import annotations

import asyncio
import contextlib


async def healthy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request of a connection with 200."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
    writer.close()
