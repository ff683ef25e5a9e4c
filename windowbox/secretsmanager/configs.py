"""What secrets are to be generated. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import Enum

_DECADE = timedelta(days=3650)


class Usage(Enum):
    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True)
class Authority:
    """A CA. Its bundle, the config `NAME-bundle`, is derived from it."""

    name: str
    common_name: str = ""
    """Empty: the name of the Secret that holds it."""
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
    """A decimal uint64 that changes exactly if the config does, whoever signs it."""
    fields = {
        name: _json(value) for name, value in asdict(config).items() if value not in _ZEROS and name != "name"
    }
    content = json.dumps([type(config).__name__, config.name, fields], sort_keys=True)
    return _decimal(content)


def bundle_checksum(certificates: Mapping[str, bytes]) -> str:
    """The checksum of a bundle of these certificates, by the names of their Secrets."""
    return _decimal(
        json.dumps(["Bundle", *(hashlib.sha256(one).hexdigest() for one in certificates.values())])
    )


_ZEROS = (None, "", (), False)


def _json(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.value if isinstance(value, Usage) else value


def _decimal(content: str) -> str:
    return str(int.from_bytes(hashlib.sha256(content.encode()).digest()[:8]))
