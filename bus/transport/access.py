"""Access to the NATS server with TLS. Connections without TLS are refused off loopback."""

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


_CLOSED = "APPLICATION_DATA_AFTER_CLOSE_NOTIFY"
"""We have closed the connection while the server was still sending: no question of trust."""


class Insecure(nats.errors.Error):
    """The server does not speak TLS, but has to."""


class SecuredClient(DirectClient):
    """A client that sends nothing in clear to a server that is not on this machine's loopback.

    nats-py begins TLS only if the server's first line asks for it, which an attacker on the path can change.
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
            # If TLS began here and failed, nats-py waits for a callback that never comes.
            if self._transport:
                self._transport.close()  # type: ignore[no-untyped-call]
                self._transport = None
            raise

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """Send a PING behind all pending data: only then does `flush` prove that the server has it.

        nats-py's PING overtakes pending data: its PONG came before the server knew of a subscription.
        """
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    def _connect_command(self) -> bytes:
        """The first command to a server: it holds user and password."""
        if not self.encrypted:
            if self._access.tls:
                raise Insecure(_PLAIN.format(reason="nats.ca, nats.cert or tls:// asks for"))
            if not ipaddress.ip_address(self._socket("peername")[0]).is_loopback:
                raise Insecure(
                    _PLAIN.format(reason="servers have to that are not on this machine's loopback")
                )
        else:
            # nats-py has put a TLS transport under asyncio's protocol without telling the protocol. asyncio
            # would warn when the server ends the connection ("returning true from eof_received() has no
            # effect"), and read without a bound.
            assert isinstance(self._transport, TcpTransport)
            if writer := self._transport._io_writer:
                protocol: asyncio.StreamReaderProtocol = writer._protocol  # type: ignore[attr-defined]
                protocol.connection_made(writer.transport)
        return super()._connect_command()

    @property
    def encrypted(self) -> bool:
        return self._socket("ssl_object") is not None

    def _socket(self, what: str) -> Any:
        assert isinstance(self._transport, TcpTransport)
        writer = self._transport._io_writer
        return writer.get_extra_info(what) if writer else None


def untrusted(error: Exception) -> str:
    """The defect and its repair if server and client do not trust each other; else empty."""
    match error:
        case Insecure():
            return str(error)
        case ssl.SSLCertVerificationError():
            return (
                f"shows a certificate that is refused here ({error.verify_message}): correct nats.ca, "
                "or give the server one that is valid for its name in nats.url"
            )
        case ssl.SSLError() if error.reason != _CLOSED:
            return f"refuses TLS with us ({error.reason}): give it what it trusts by nats.cert and nats.key"
    return ""
