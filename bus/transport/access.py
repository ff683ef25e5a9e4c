"""Access to the NATS server: URL, user, TLS. Connections in clear are refused off loopback."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from typing import Any

import nats.errors
from nats.aio.client import PING_PROTO
from nats.aio.transport import TcpTransport

from bus.transport.directclient import DirectClient
from windowbox.settings.bussettings import Access

_PLAIN = "speaks no TLS, which {reason}: give it a certificate (`tls` in its configuration), and set nats.ca"


class Insecure(nats.errors.Error):
    """The server does not speak TLS, and has to."""


class SecuredClient(DirectClient):
    """A client that tells nothing in clear to a server that is not on this machine's loopback.

    nats-py begins TLS only if the server's first line asks for it, and anybody on the way could change that.
    """

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    @property
    def ssl_context(self) -> ssl.SSLContext:
        return self._access.context()

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            # Nobody is told that this socket is closed if TLS began on it and failed, and nats-py would wait.
            if self._transport:
                self._transport.close()  # type: ignore[no-untyped-call]
                self._transport = None
            raise

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """In its place behind all that waits to be sent, or `flush` would prove nothing.

        nats-py's own overtakes that: a PONG came back before the server knew of a subscription.
        """
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    def _connect_command(self) -> bytes:
        """What a server is told first: who we are, password included."""
        if not self.encrypted:
            if self._access.tls:
                raise Insecure(_PLAIN.format(reason="nats.ca, nats.cert or tls:// asks for"))
            if not self._on_loopback():
                raise Insecure(
                    _PLAIN.format(reason="servers have to that are not on this machine's loopback")
                )
        else:
            self._introduce_tls()
        return super()._connect_command()

    @property
    def encrypted(self) -> bool:
        return self._socket("ssl_object") is not None

    def _introduce_tls(self) -> None:
        """Tell asyncio's protocol of the transport that nats-py has put under it.

        Without that it does not know that it speaks TLS, so that asyncio warns when the server ends the
        connection ("returning true from eof_received() has no effect"), and it reads on without a bound.
        """
        assert isinstance(self._transport, TcpTransport)
        if writer := self._transport._io_writer:
            protocol: asyncio.StreamReaderProtocol = writer._protocol  # type: ignore[attr-defined]
            protocol.connection_made(writer.transport)

    def _on_loopback(self) -> bool:
        return ipaddress.ip_address(self._socket("peername")[0]).is_loopback

    def _socket(self, what: str) -> Any:
        assert isinstance(self._transport, TcpTransport)
        writer = self._transport._io_writer
        return writer.get_extra_info(what) if writer else None
