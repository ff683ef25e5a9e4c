"""HTTP over a Unix socket, as much of it as Envoy's admin interface speaks."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from windowbox.errors import Refused, Unreachable

_TIMEOUT = 5.0
_LONGEST_PATH = 100
"""Addresses of Unix sockets hold little more, whatever the file system allows."""


async def request(socket: Path, target: str, *, post: bool = False) -> bytes:
    """The body of the answer. Unreachable if nobody answers, Refused if the answer is an error."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            head, body = await _exchange(socket, "POST" if post else "GET", target)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
        raise Unreachable(f"ask {socket} for {target}: {error or 'no answer in time'}") from error
    status = head.split(maxsplit=2)[1]
    if status != b"200":
        raise Refused(f"ask {socket} for {target}: {body.decode(errors='replace').strip()}")
    return body


async def _exchange(socket: Path, method: str, target: str) -> tuple[bytes, bytes]:
    reader, writer = await _connect(socket)
    try:
        # Envoy does not speak HTTP/1.0, whose answers would be simpler.
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        rest = await reader.read()
    finally:
        writer.close()
    return head, _joined(rest) if b"transfer-encoding: chunked" in head.lower() else rest


async def _connect(socket: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if len(str(socket)) <= _LONGEST_PATH or sys.platform != "linux":
        return await asyncio.open_unix_connection(str(socket))
    folder = os.open(socket.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{socket.name}")
    finally:
        os.close(folder)


def _joined(chunks: bytes) -> bytes:
    found: list[bytes] = []
    at = 0
    while True:
        end = chunks.index(b"\r\n", at)
        size = int(chunks[at:end], 16)
        if size == 0:
            return b"".join(found)
        found.append(chunks[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
