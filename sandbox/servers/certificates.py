"""The sandbox's certificate authority, and the certificates that it issues.

They have elliptic-curve keys, which are generated in a millisecond, and files instead of Secrets.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from sandbox import files
from windowbox.secretsmanager import generation

_YEARS = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(minutes=5)
"""A client whose clock is behind would refuse a certificate that is valid from now."""


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its private key."""

    certificate: Path
    key: Path

    def exists(self) -> bool:
        return self.certificate.exists() and self.key.exists()


def authority(folder: Path) -> Pair:
    """The authority in `folder`, created if there is none yet."""
    pair = Pair(folder / "ca.crt", folder / "ca.key")
    if not pair.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        name = generation.x509_name("windowbox-sandbox")
        builder = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(generation.usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        _write_private(pair.key, key)
        pair.certificate.write_bytes(generation.signed(builder, key))
    return pair


def client(ca: Pair, folder: Path, user: str, *, groups: Sequence[str] = ()) -> Pair:
    """A client certificate for `user` as a member of `groups`."""
    name = user.rpartition(":")[2]
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    if not pair.exists():
        _issue(ca, pair, generation.x509_name(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH], ())
    return pair


def server(ca: Pair, folder: Path, name: str, hosts: Sequence[str], *, peers: bool = False) -> Pair:
    """A server certificate for `hosts`; with `peers`, servers also show it to each other as clients."""
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if peers else [])]
    if not pair.exists():
        _issue(ca, pair, generation.x509_name(name), usages, hosts)
    return pair


def holds(ca: Pair, path: Path) -> bool:
    """Whether the file at `path` holds a valid certificate of this authority, and its key."""
    try:
        ssl.create_default_context().load_cert_chain(path)
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.certificate.read_bytes()))
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    return certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC)


def signing_key(path: Path) -> Path:
    """A private key for service account tokens, created if there is none yet."""
    if not path.exists():
        _write_private(path, ec.generate_private_key(ec.SECP256R1()))
    return path


def _issue(
    ca: Pair, pair: Pair, subject: x509.Name, usages: Sequence[x509.ObjectIdentifier], hosts: Sequence[str]
) -> None:
    authority_key = serialization.load_pem_private_key(ca.key.read_bytes(), password=None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(ca.certificate.read_bytes()).subject
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(subject, issuer, key)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(identifier, critical=False)
    )
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    _write_private(pair.key, key)
    pair.certificate.write_bytes(generation.signed(builder, authority_key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return generation.head(subject, issuer, key.public_key(), now - _CLOCK_SKEW, now + _YEARS)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    files.write_private(path, generation.pem(key).decode())
