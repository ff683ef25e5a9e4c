"""The open ports of simulated nodes: real sockets on loopback addresses."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import orjson
from aiohttp import web

from sandbox.simulated.openports import Drop, Echo, NodeHealth, OpenPort, Place, ServiceHealth

logger = logging.getLogger(__name__)

_BACKLOG = 1024


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
    """One UDP port: each datagram is echoed, after a line of greeting."""

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


class Sockets:
    """The open ports. Closing one keeps its established connections, as conntrack would."""

    def __init__(self, silent: Callable[[str], bool]) -> None:
        """`silent` returns whether a node hangs, and so answers nothing."""
        self._silent = silent
        self._open: dict[Place, tuple[OpenPort, Callable[[], None]]] = {}
        # A hanging node never answers a health check: the handler ends with its client.
        self._http = web.Server(self._healthz, handler_cancellation=True, access_log=None)

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, place: Place, port: OpenPort) -> None:
        """Open `port` at `place`, or change how it answers. OSError if that fails."""
        before = self._open.get(place)
        if before and type(before[0]) is type(port) and before[0].node == port.node:
            self._open[place] = (port, before[1])  # the answer has changed, the socket stays
            return
        self.close(place)
        self._open[place] = (port, await self._opened(place, port))

    def close(self, place: Place) -> None:
        if before := self._open.pop(place, None):
            before[1]()

    async def _opened(self, place: Place, port: OpenPort) -> Callable[[], None]:
        """Open the port; returns how to close it."""
        loop = asyncio.get_running_loop()

        def silent() -> bool:
            return self._silent(port.node)

        udp = place.protocol == "UDP"
        bound = socket.socket(type=socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
        try:
            bound.setblocking(False)
            if not udp:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((place.address, place.port))
            match port:
                case Drop():
                    if place.protocol == "UDP":
                        return bound.close  # datagrams are never read
                    # Linux drops SYNs once the queue is full: with this backlog, after one connection.
                    bound.listen(0)
                    filler = socket.socket()
                    filler.setblocking(False)
                    filler.connect_ex((place.address, place.port))

                    def close() -> None:
                        filler.close()
                        bound.close()

                    return close
                case Echo() if place.protocol == "UDP":
                    transport, _ = await loop.create_datagram_endpoint(
                        lambda: Datagrams(port.node, silent), sock=bound
                    )
                    return transport.close
                case Echo():
                    server = await loop.create_server(
                        lambda: Greeter(port.node, silent), sock=bound, backlog=_BACKLOG
                    )
                    return server.close
                case ServiceHealth() | NodeHealth():
                    server = await loop.create_server(self._http, sock=bound, backlog=_BACKLOG)
                    return server.close
        except BaseException:
            bound.close()
            raise

    async def _healthz(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        address, port = request.transport.get_extra_info("sockname")[:2]
        port, _ = self._open.get(Place(address, port), (None, None))
        if port and self._silent(port.node):
            await asyncio.Event().wait()  # until the client gives up
        match port:
            case NodeHealth():
                if request.path not in ("/healthz", "/livez"):
                    return web.Response(status=404)
                now = datetime.now(UTC).isoformat()
                body: dict[str, object] = {"lastUpdated": now, "currentTime": now}
                if request.path == "/livez":
                    return _answer(True, body)
                return _answer(port.eligible, body | {"nodeEligible": port.eligible})
            case ServiceHealth():
                response = _answer(
                    port.endpoints > 0,
                    {
                        "service": {"namespace": port.namespace, "name": port.name},
                        "localEndpoints": port.endpoints,
                        "serviceProxyHealthy": True,
                    },
                )
                response.headers["X-Load-Balancing-Endpoint-Weight"] = str(port.endpoints)
                return response
            case _:  # the port was closed, and the connection is older
                return web.Response(status=503)


def _answer(healthy: bool, body: dict[str, object]) -> web.Response:
    return web.Response(
        status=200 if healthy else 503,
        body=orjson.dumps(body),
        headers={"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"},
    )
