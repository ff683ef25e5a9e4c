"""Access to the NATS server: URL, user, TLS. Connections in clear are refused off loopback."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import PING_PROTO
from nats.aio.transport import TcpTransport

from bus.directclient import DirectClient
from windowbox.errors import Malformed

_BLOCK = re.compile(r"-+BEGIN [^-\n]+-+\s+(\S+)\s+-+END [^-\n]+-+")
_SEED = slice(2, 34)
"""Of an nkey's bytes: before it stands what it is for, after it a checksum."""

_PLAIN = "speaks no TLS, which {reason}: give it a certificate (`tls` in its configuration), and set nats.ca"


class Insecure(nats.errors.Error):
    """The server does not speak TLS, and has to."""


@dataclass(frozen=True)
class Access:
    """Where the bus is, and as whom to enter."""

    url: str
    user: str | None = None
    password: str | None = None
    name: str = "windowbox"
    ca: Path | None = None
    """Who has signed the servers' certificates; by default anybody whom this machine trusts."""
    cert: Path | None = None
    key: Path | None = None
    creds: Path | None = None
    """A file with the JWT of a user, and its seed."""

    @property
    def servers(self) -> list[str]:
        return self.url.split(",")

    @property
    def tls(self) -> bool:
        """Whether TLS is asked for, wherever the servers are."""
        return bool(self.ca or self.cert) or any(urlsplit(url).scheme == "tls" for url in self.servers)

    def check(self) -> None:
        """Raise Malformed if something cannot be used as it is."""
        for url in self.servers:
            if "://" in url and urlsplit(url).scheme not in ("nats", "tls"):
                raise Malformed(f"nats.url: {url} begins neither with nats:// nor with tls://")
        if bool(self.cert) != bool(self.key):
            raise Malformed("nats.cert and nats.key belong together: set both, or none")
        if self.creds and self.password:
            raise Malformed("nats.creds and nats.password are two ways to enter: set one of them")
        try:
            if self.ca or self.cert:
                self.context()
            if self.creds:
                self.sign("")
        except (OSError, ValueError) as error:
            raise Malformed(f"{self._files()}: {error}") from error

    def context(self) -> ssl.SSLContext:
        """What is trusted and what is shown. Read anew for each connection: certificates are renewed."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert:
            # With a password, or OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(self.cert, self.key, password="")
        return context

    def jwt(self) -> bytearray:
        return bytearray(self._credentials()[0].encode())

    def sign(self, nonce: str) -> bytes:
        """The proof that we have the seed of the JWT."""
        # Imported where it is needed: this library takes 8 MB.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            seed = base64.b32decode(self._padded(self._credentials()[1]))[_SEED]
        except binascii.Error:
            raise ValueError("the seed is no nkey") from None  # and what it is, nobody may read
        return base64.b64encode(Ed25519PrivateKey.from_private_bytes(seed).sign(nonce.encode()))

    def _credentials(self) -> tuple[str, str]:
        assert self.creds
        blocks = _BLOCK.findall(self.creds.read_text())
        if len(blocks) != 2:
            raise ValueError("a file with the JWT and the seed of a user is wanted")
        return blocks[0], blocks[1]

    @staticmethod
    def _padded(text: str) -> str:
        return text + "=" * (-len(text) % 8)

    def _files(self) -> str:
        named = {"nats.ca": self.ca, "nats.cert": self.cert, "nats.key": self.key, "nats.creds": self.creds}
        return ", ".join(f"{setting} ({path})" for setting, path in named.items() if path)


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
