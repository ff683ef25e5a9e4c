"""Nodes simulated by servers on loopback addresses. Each reports its name and its client's address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from windowbox.models.loadbalancers import Endpoint


@dataclass
class Node:
    """Greets over TCP, then echoes; answers datagrams; reports its health."""

    name: str
    address: str
    port: int = 30080
    check: int = 10256
    healthy: bool = True
    asked: Callable[[], Awaitable[None]] | None = None
    """Called at each health check, before the response."""
    _servers: list[asyncio.Server] = field(default_factory=list)
    _datagrams: asyncio.DatagramTransport | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.address, self.port, self.name)

    async def start(self) -> Node:
        self._servers = [
            await asyncio.start_server(self._greet, self.address, self.port, backlog=1024),
            await asyncio.start_server(self._report_health, self.address, self.check, backlog=1024),
        ]
        self._datagrams, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Datagrams(self.name), local_addr=(self.address, self.port)
        )
        return self

    async def stop(self) -> None:
        """Stop listening at once, and cut open connections."""
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            with contextlib.suppress(RuntimeError):
                writer.transport.abort()
        if self._datagrams is not None:
            self._datagrams.close()
        await asyncio.sleep(0)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            peer = writer.get_extra_info("peername")
            writer.write(f"{self.name} sees {peer[0]}\n".encode() if peer else b"")
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _report_health(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            if self.asked is not None:
                await self.asked()
            word = b"200 OK" if self.healthy else b"503 Service Unavailable"
            writer.write(b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % word)
        writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, name: str) -> None:
        self._name = name

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.DatagramTransport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        answer = f"{self._name} sees {address[0]}:{address[1]}".encode()
        self._transport.sendto(answer if data == b"?" else data, address)


class Silent:
    """A node that does not respond: packets to its ports are dropped."""

    def __init__(self, address: str) -> None:
        self._sockets: list[socket.socket] = []
        for port in (30080, 10256):
            full = socket.socket()
            full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            full.bind((address, port))
            full.listen(0)
            self._sockets.append(full)
            for _ in range(3):  # they fill the accept queue, so further connections get no response
                waiting = socket.socket()
                waiting.setblocking(False)
                waiting.connect_ex((address, port))
                self._sockets.append(waiting)

    def close(self) -> None:
        for one in self._sockets:
            one.close()
