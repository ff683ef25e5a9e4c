"""What settings say to the bus: where it is and as whom to enter, how much it keeps, what decides runs."""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel

from windowbox.errors import Malformed
from windowbox.settings.kindsettings import KindSettings
from windowbox.settings.lbsettings import Range

_BLOCK = re.compile(r"-+BEGIN [^-\n]+-+\s+(\S+)\s+-+END [^-\n]+-+")


_SEED = slice(2, 34)
"""Of an nkey's bytes: before it stands what it is for, after it a checksum."""


_GIB = 1 << 30


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


class Retention(NamedTuple):
    """How much OBJECTS holds."""

    size: int = 4 * _GIB
    """Bytes."""
    versions: int = 16
    """Of each object. The last is what runs read; former ones are for those who look back."""


class Zone(BaseModel, frozen=True):
    """A zone, as far as decisions depend on it: neither its servers nor its key."""

    name: str
    key_from_record: bool = False
    ownership: str | None = None


class Balancing(BaseModel, frozen=True):
    """The settings of load balancers, as far as decisions depend on them."""

    classes: tuple[str, ...] = ()
    conditions: bool = True
    grace: float = 300.0
    direct: tuple[str, ...] = ()
    ranges: tuple[Range, ...] = ()


class Deciding(BaseModel, frozen=True):
    """The settings that decide what a run does."""

    zones: tuple[Zone, ...] = ()
    classes: tuple[str, ...] = ()
    ignore_operation_annotation: bool = False
    balancing: Balancing = Balancing()
    kinds: KindSettings = KindSettings()
    """The settings of kinds that make objects, as far as decisions depend on them."""
