"""Echo servers of simulated nodes: greet with Pod, node and peer, then echo."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast


class Greeter(asyncio.Protocol):
    """One TCP connection: greeted at once, then an echo."""

    def __init__(self, node: str, silent: Callable[[], bool]) -> None:
        self._node = node
        self._silent = silent
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        if not self._silent():
            self._transport.write(greeting(self._node, transport.get_extra_info("peername")))

    def data_received(self, data: bytes) -> None:
        if not self._silent():
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def eof_received(self) -> bool:
        return self._silent()  # a hanging node does not react to the end of the connection


class Datagrams(asyncio.DatagramProtocol):
    """One UDP port: each datagram is answered by itself, after a line of greeting."""

    def __init__(self, node: str, silent: Callable[[], bool]) -> None:
        self._node = node
        self._silent = silent
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if not self._silent():
            self._transport.sendto(greeting(self._node, addr) + data, addr)


def greeting(node: str, peer: tuple[str | Any, int]) -> bytes:
    return f"node={node} peer={peer[0]}:{peer[1]}\n".encode()
