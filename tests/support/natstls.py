"""Certificates and credentials of a bus, good ones and bad ones."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandbox.servers import certificates
from sandbox.servers.certificates import Pair

_OPERATOR, _ACCOUNT, _USER, _SEED = 14 << 3, 0, 20 << 3, 18 << 3


@dataclass(frozen=True)
class Tls:
    """The files of an authority, of a server that it vouches for, and of a client."""

    folder: Path
    hosts: Sequence[str] = ("127.0.0.1",)

    def __post_init__(self) -> None:
        self.renew()

    @property
    def ca(self) -> Pair:
        return Pair(self.folder / "ca.crt", self.folder / "ca.key")

    @property
    def server(self) -> Pair:
        return Pair(self.folder / "nats.crt", self.folder / "nats.key")

    @property
    def client(self) -> Pair:
        return Pair(self.folder / "worker.crt", self.folder / "worker.key")

    def renew(self) -> None:
        """Make everything anew, the authority too."""
        for pair in (self.ca, self.server, self.client):
            pair.certificate.unlink(missing_ok=True)
            pair.key.unlink(missing_ok=True)
        ca = certificates.authority(self.folder)
        certificates.server(ca, self.folder, "nats", self.hosts)
        certificates.client(ca, self.folder, "worker")

    def expire(self) -> None:
        """Let the server's certificate have ended yesterday."""
        backdate(self.ca, self.server)

    def options(self, *, verify: bool = False) -> tuple[str, ...]:
        """The configuration of nats-server for TLS, which verifies clients if wanted."""
        files = (f"--tlscert={self.server.certificate}", f"--tlskey={self.server.key}")
        return (*files, "--tlsverify", f"--tlscacert={self.ca.certificate}") if verify else ("--tls", *files)


def backdate(ca: Pair, pair: Pair) -> None:
    """Let a certificate have ended yesterday."""
    found = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    key = serialization.load_pem_private_key(ca.key.read_bytes(), password=None)
    public = found.public_key()
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(found.subject)
        .issuer_name(found.issuer)
        .public_key(public)
        .serial_number(found.serial_number)
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now - datetime.timedelta(days=1))
    )
    for extension in found.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    made = builder.sign(key, hashes.SHA256())
    pair.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))


class Identities:
    """An operator, an account and a user of NATS, as `nsc` would make them."""

    def __init__(self) -> None:
        self._operator, self._account, self._user = (Ed25519PrivateKey.generate() for _ in range(3))
        self._account_name = _public(_ACCOUNT, self._account)

    def configuration(self, port: int) -> str:
        """A server's configuration that knows nobody but the users of the account."""
        operator = _public(_OPERATOR, self._operator)
        limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        vouched = _jwt(
            self._operator, operator, self._account_name, "account", limits={**limits, "wildcards": True}
        )
        return json.dumps(
            {
                "listen": f"127.0.0.1:{port}",
                "operator": _jwt(self._operator, operator, operator, "operator"),
                "resolver": "MEMORY",
                "resolver_preload": {self._account_name: vouched},
            }
        )

    def credentials(self) -> str:
        """What the user shows, and its seed."""
        user = _public(_USER, self._user)
        jwt = _jwt(
            self._account, self._account_name, user, "user", pub={}, sub={}, subs=-1, data=-1, payload=-1
        )
        seed = _encoded(bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + self._user.private_bytes_raw())
        return (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"************************* IMPORTANT *************************\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )


def _public(kind: int, key: Ed25519PrivateKey) -> str:
    return _encoded(bytes([kind]) + key.public_key().public_bytes_raw())


def _encoded(raw: bytes) -> str:
    checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + checksum).decode().rstrip("=")


def _jwt(signer: Ed25519PrivateKey, issuer: str, subject: str, kind: str, **claims: object) -> str:
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    nats = {"type": kind, "version": 2, **claims}
    claim = {"jti": kind, "iat": 1_700_000_000, "iss": issuer, "name": kind, "sub": subject, "nats": nats}
    text = ".".join(_base64(json.dumps(part).encode()) for part in (header, claim))
    return f"{text}.{_base64(signer.sign(text.encode()))}"


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
