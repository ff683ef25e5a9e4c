"""Clients of load balancers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.support.running import running, soon

PORT = 8080
"""Where load balancers listen, unless a test says otherwise."""


async def greeting(address: str, port: int = PORT, source: str | None = None) -> str:
    """The name of the node that a new connection reaches; empty if it was closed without a byte."""
    try:
        async with talk(address, port, source) as one:
            return one.name
    except ConnectionResetError:
        return ""


async def serves(address: str) -> bool:
    """Whether a connection reaches a node."""
    try:
        return bool(await greeting(address))
    except OSError:
        return False


async def datagram(
    address: str, port: int = PORT, data: bytes = b"?", source: str | None = None, patience: float = 5
) -> bytes | None:
    """The answer to a datagram from a port of its own; None if there is none."""
    async with flow(address, port, source) as one:
        return await one.ask(data, patience)


async def named(address: str, port: int = PORT, source: str | None = None, patience: float = 5) -> str:
    """The name of the node that a datagram reaches; empty if none answers."""
    answer = await datagram(address, port, source=source, patience=patience)
    return (answer or b"").decode().partition(" ")[0]


@dataclass
class Flow:
    """Datagrams from one port."""

    _socket: socket.socket

    async def ask(self, data: bytes = b"?", patience: float = 5) -> bytes | None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError, ConnectionRefusedError):
            await loop.sock_sendall(self._socket, data)
            async with asyncio.timeout(patience):
                return await loop.sock_recv(self._socket, 65535)
        return None


@contextlib.asynccontextmanager
async def flow(address: str, port: int = PORT, source: str | None = None) -> AsyncIterator[Flow]:
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as own:
        own.setblocking(False)
        if source:
            own.bind((source, 0))
        own.connect((address, port))
        yield Flow(own)


@dataclass
class Talk:
    """An open connection to a node."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    name: str

    async def echo(self) -> bool:
        try:
            self.writer.write(b"still there?\n")
            return await soon(self.reader.readline()) == b"still there?\n"
        except OSError:
            return False


@contextlib.asynccontextmanager
async def talk(address: str, port: int = PORT, source: str | None = None) -> AsyncIterator[Talk]:
    local = (source, 0) if source else None
    reader, writer = await soon(asyncio.open_connection(address, port, local_addr=local))
    try:
        line = await soon(reader.readline())
        yield Talk(reader, writer, line.decode().strip().partition(" ")[0])
    finally:
        writer.close()


@dataclass
class Count:
    """The results of clients that connect all the time."""

    reached: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def further(self, connections: int) -> None:
        """Wait until so many more connections have been made."""
        until = self.reached.total() + len(self.failed) + connections
        while self.reached.total() + len(self.failed) < until:
            self.more.clear()
            await soon(self.more.wait())


@contextlib.asynccontextmanager
async def counting(address: str) -> AsyncIterator[Count]:
    """Four clients that connect one after the other, for as long as the body runs."""
    count = Count()

    async def connect() -> None:
        while True:
            try:
                name = await greeting(address)
            except OSError as error:
                count.failed.append(str(error))
            else:
                if name:
                    count.reached[name] += 1
                else:
                    count.failed.append("closed without a byte")
            count.more.set()
            await asyncio.sleep(0.005)  # the pace of a client

    async with running(*(connect() for _ in range(4))):
        yield count
