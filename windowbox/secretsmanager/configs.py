"""The configurations of generated secrets, and their checksums. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import Enum

_DECADE = timedelta(days=3652)
"""Gardener's default: ten years by the calendar, 3,651 to 3,653 days."""


class Usage(Enum):
    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True)
class Authority:
    """A CA. Its common name is that of the Secret that holds it; its bundle is the config `NAME-bundle`."""

    name: str
    validity: timedelta = _DECADE
    persist: bool = False
    """Whether gardenlet stores it for a migration."""

    @property
    def bundle(self) -> str:
        return f"{self.name}-bundle"


@dataclass(frozen=True)
class Certificate:
    """A certificate of a server or a client."""

    name: str
    common_name: str
    authority: str
    """The name of the Authority that signs it."""
    usage: Usage
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    validity: timedelta = _DECADE
    publish_authority: bool = False
    """Whether the Secret holds the certificate of the Authority, too."""
    elliptic: bool = False
    """Whether its key is of a curve, not RSA: signing a handshake takes 0.04 ms of CPU instead of 2.7 ms."""


@dataclass(frozen=True)
class BasicAuth:
    """A user name and a generated password."""

    name: str
    user_name: str = ""
    password_length: int = 32
    validity: timedelta | None = None
    """Without it, the password is never renewed."""


Config = Authority | Certificate | BasicAuth


def checksum(config: Config) -> str:
    """A decimal uint64 that changes exactly if the config does, independent of the signer.

    Those of authorities and passwords are Gardener's own, so that each of both programs finds what the other
    has generated. Gardener's of a certificate covers its signer's keys: these are recognised by content.
    """
    match config:
        case Authority():
            # Go's nil: Gardener's own default is a decade.
            validity = (
                0 if config.validity == _DECADE else config.validity // timedelta(microseconds=1) * 1000
            )
            named: Fields = {"Name": config.name, "CommonName": config.name, "CertType": "ca"}
            return str(struct_checksum("CertificateSecretConfig", {**named, "Validity": validity}))
        case BasicAuth():
            length = config.password_length
            named = {"Name": config.name, "Format": "normal", "Username": config.user_name}
            return str(struct_checksum("BasicAuthSecretConfig", {**named, "PasswordLength": length}))
        case Certificate():
            content = {name: _json(value) for name, value in asdict(config).items()}
            del content["elliptic"]  # certificates with the other sort of key stay until they are renewed
            return _decimal(json.dumps(content, sort_keys=True))


def bundle_checksum(certificates: Mapping[str, bytes]) -> str:
    """The checksum of a bundle of these certificates, by the names of their Secrets."""
    return _decimal(
        json.dumps(["Bundle", *(hashlib.sha256(one).hexdigest() for one in certificates.values())])
    )


def _json(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.value if isinstance(value, Usage) else value


def _decimal(content: str) -> str:
    return str(int.from_bytes(hashlib.sha256(content.encode()).digest()[:8]))


Fields = Mapping[str, str | int]

_BASIS, _PRIME, _BITS = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def struct_checksum(struct: str, fields: Fields) -> int:
    """`fields` in the order of the struct; numbers are of the types int and time.Duration."""
    found = _fnv(struct.encode())
    for name, value in fields.items():
        if value:
            found = _fnv(_number(found ^ _fnv(_number(_value(name)) + _number(_value(value)))))
    return found


def _value(value: str | int) -> int:
    return _fnv(value.encode() if isinstance(value, str) else _number(value))


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _fnv(content: bytes) -> int:
    found = _BASIS
    for byte in content:
        found = (found * _PRIME & _BITS) ^ byte
    return found
