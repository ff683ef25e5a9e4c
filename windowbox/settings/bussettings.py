"""Settings for the bus: its address, the credentials, its retention, and the settings that decide runs."""

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
"""The seed in the bytes of an nkey, between a prefix with its type and a checksum."""

_GIB = 1 << 30


@dataclass(frozen=True)
class Access:
    """The address of the bus, and the credentials of a user."""

    url: str
    user: str | None = None
    password: str | None = None
    name: str = "windowbox"
    ca: Path | None = None
    """The authorities of the servers' certificates; by default those that this machine trusts."""
    cert: Path | None = None
    key: Path | None = None
    creds: Path | None = None
    """A file with the JWT of a user, and its seed."""

    @property
    def servers(self) -> list[str]:
        return self.url.split(",")

    @property
    def tls(self) -> bool:
        """Whether the settings require TLS, even on loopback."""
        return bool(self.ca or self.cert) or any(urlsplit(url).scheme == "tls" for url in self.servers)

    def check(self) -> None:
        """Raise Malformed, with the setting, if the bus cannot be used with these values."""
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
            files = {
                "nats.ca": self.ca, "nats.cert": self.cert, "nats.key": self.key, "nats.creds": self.creds,
            }  # fmt: skip
            named = ", ".join(f"{setting} ({path})" for setting, path in files.items() if path)
            raise Malformed(f"{named}: {error}") from error

    def context(self) -> ssl.SSLContext:
        """The TLS configuration. Reads the files for each connection, because certificates are renewed."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert:
            # Without a password, OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(self.cert, self.key, password="")
        return context

    def jwt(self) -> bytearray:
        return bytearray(self._credentials()[0].encode())

    def sign(self, nonce: str) -> bytes:
        """The proof that we have the seed of the JWT."""
        # Imported here, because this library takes 8 MB of memory.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            text = self._credentials()[1]
            seed = base64.b32decode(text + "=" * (-len(text) % 8))[_SEED]
        except binascii.Error:
            raise ValueError("the seed is no nkey") from None  # the cause would quote a secret
        return base64.b64encode(Ed25519PrivateKey.from_private_bytes(seed).sign(nonce.encode()))

    def _credentials(self) -> tuple[str, str]:
        assert self.creds
        blocks = _BLOCK.findall(self.creds.read_text())
        if len(blocks) != 2:
            raise ValueError("a file with the JWT and the seed of a user is wanted")
        return blocks[0], blocks[1]


class Retention(NamedTuple):
    """The limits of the stream OBJECTS."""

    size: int = 4 * _GIB
    """Bytes."""
    versions: int = 16
    """Of each object. Runs read the last one; `trace` and `record` show former ones."""


class Zone(BaseModel, frozen=True):
    """A zone, as far as decisions depend on it: neither its servers nor its key."""

    name: str
    key_from_record: bool = False
    ownership: str | None = None


class Balancing(BaseModel, frozen=True):
    """The settings of load balancers, as far as decisions depend on them."""

    clusters: tuple[str, ...] = ("*",)
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
    """The settings of kinds that create objects, as far as decisions depend on them."""
