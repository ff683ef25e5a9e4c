"""Backends that greet and echo, clients that listen, and load balancers between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.support.running import PATIENCE, eventually, soon
from windowbox.errors import Unreachable
from windowbox.models.loadbalancers import Endpoint, Listener, LoadBalancer, Protocol
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.envoy import bootstrap, resources
from workers.loadbalancer.envoy.attachments import Attachment, Order, Published, Running

SERVICE = ObjectRef("local", "services", "shop", "web")
UID = "d9607e19-f88f-11e6-a518-42010a800195"
LABELS = {"gardener.cloud/service": "shop/web"}


@dataclass(frozen=True)
class Backend:
    """Greets over TCP, with its name and the peer it sees, and then echoes; over UDP, puts its name first."""

    name: str
    address: str
    port: int

    def listener(self, address: str, port: int, protocol: Protocol = "TCP") -> Listener:
        """What a client connects to in order to reach it."""
        return Listener(address, port, protocol, (Endpoint(self.address, self.port, self.name),))


@contextlib.asynccontextmanager
async def backend(name: str, address: str) -> AsyncIterator[Backend]:
    clients: list[asyncio.StreamWriter] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.append(writer)
        with contextlib.suppress(ConnectionError):
            writer.write(f"{name} {writer.get_extra_info('peername')[0]}\n".encode())
            while line := await reader.readline():
                writer.write(line)
        writer.close()

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport: asyncio.DatagramTransport = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.transport.sendto(f"{name} ".encode() + data, addr)

    async with await asyncio.start_server(greet, address, 0) as server:
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=(address, port))
        try:
            yield Backend(name, address, port)
        finally:
            transport.close()
            for client in clients:
                client.close()


def balancer(*listeners: Listener) -> LoadBalancer:
    return LoadBalancer(SERVICE, UID, listeners)


def files(attachment: Attachment, *wanted: LoadBalancer) -> dict[str, bytes]:
    """All that an Envoy needs to serve these."""
    folder = attachment.folder
    made = resources.configuration(wanted, folder=folder).files
    return {bootstrap.BOOTSTRAP: bootstrap.bootstrap(folder), **made}


def order(attachment: Attachment, *wanted: LoadBalancer, name: str = "edge", generation: int = 1) -> Order:
    published = [Published(one.address, one.port, one.protocol) for lb in wanted for one in lb.listeners]
    return Order(name, generation, files(attachment, *wanted), published, LABELS)


async def update(attachment: Attachment, envoy: Running, *wanted: LoadBalancer) -> None:
    await envoy.write(resources.configuration(wanted, folder=attachment.folder).files)


async def greeting(address: str, port: int) -> str:
    """What the backend behind an address says, without waiting for it to come up."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(address, port)
        with contextlib.closing(writer):
            return (await reader.readline()).decode().strip()


async def greeted(address: str, port: int, by: str) -> None:
    """Wait until connections to an address are greeted by this backend."""

    async def try_once() -> bool:
        with contextlib.suppress(OSError):
            return (await greeting(address, port)).startswith(f"{by} ")
        return False

    await until(try_once, f"{address}:{port} is not served by {by}")


async def serving(
    attachment: Attachment, backend: Backend, address: str, *, name: str = "edge", generation: int = 1
) -> Running:
    """An Envoy that serves the backend at port 80 of the address."""
    await attachment.prepare([address])
    wanted = balancer(backend.listener(address, 80))
    envoy = await attachment.start(order(attachment, wanted, name=name, generation=generation))
    await greeted(address, 80, backend.name)
    return envoy


@contextlib.asynccontextmanager
async def held(address: str, port: int = 80) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A connection that was greeted; what is given sees that it goes on."""
    reader, writer = await asyncio.open_connection(address, port)
    await reader.readline()

    async def goes_on() -> None:
        writer.write(b"still here\n")
        assert await soon(reader.readline()) == b"still here\n"

    with contextlib.closing(writer):
        yield goes_on


async def echo(address: str, port: int, data: bytes) -> bytes:
    """What comes back for a datagram; sent again as long as nothing does, as datagrams get lost."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            if not answer.done():
                answer.set_result(data)

    transport, _ = await loop.create_datagram_endpoint(Client, remote_addr=(address, port))
    with contextlib.closing(transport):
        for _attempt in range(20):
            transport.sendto(data)
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(answer), 0.5)
    raise AssertionError(f"{address}:{port}/UDP does not answer")


async def live(envoy: Running) -> None:
    """Wait until Envoy says of itself that it serves."""

    async def try_once() -> bool:
        with contextlib.suppress(Unreachable):
            return (await envoy.ask("/ready")).strip() == b"LIVE"
        return False

    await until(try_once, "Envoy does not become ready")


async def until(holds: Callable[[], Awaitable[bool]], complaint: str) -> None:
    """Nobody tells when a container's program is ready: it has to be asked."""
    try:
        await eventually(holds, PATIENCE)
    except TimeoutError:
        raise AssertionError(complaint) from None
