"""Settings of DNS: zones, their name servers, and the keys of updates."""

from __future__ import annotations

import base64
import binascii
import re
from ipaddress import IPv6Address
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator

from windowbox.settings.section import PrivateSection

Algorithm = Literal["hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"]

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


def _zone_name(text: str) -> str:
    name = text.strip().lower().removesuffix(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(f"{text!r} is not a zone: write its apex, like local.gardener.cloud")
    return name


def _secret(secret: SecretStr) -> SecretStr:
    try:
        raw = base64.b64decode(secret.get_secret_value().strip(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw:
        raise ValueError("is not base64: copy the text between the quotes that tsig-keygen prints")
    return secret


def split_server(server: str) -> tuple[str, int]:
    """Host and port of `host`, `host:port`, `[v6]:port` or a bare IPv6 address; the port is 53 if absent."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d+))?", server)
    host, port = (bracketed[1], bracketed[2] or "") if bracketed else (server, "")
    if not port and host.count(":") == 1:
        host, _, port = host.partition(":")
    elif host.count(":") > 1:
        IPv6Address(host)  # or ValueError
    if not host or not (port or "53").isdecimal() or not 0 < int(port or "53") < 65536:
        raise ValueError(f"{server!r} is not a server: write host, host:port or [v6-address]:port")
    return host, int(port or "53")


def _server(server: str) -> str:
    split_server(server)
    return server


class _Settings(PrivateSection):
    model_config = ConfigDict(use_attribute_docstrings=True)


class KeySettings(_Settings):
    """A TSIG key, as `tsig-keygen` prints it."""

    name: Annotated[str, AfterValidator(_zone_name)]
    """Name of the key in the server's configuration."""
    algorithm: Algorithm = "hmac-sha256"
    """Algorithm; it is part of the key's identity."""
    secret: Annotated[SecretStr, AfterValidator(_secret)]
    """Secret in base64, as `tsig-keygen` prints it between quotes."""


class ZoneSettings(_Settings):
    """A zone that accepts dynamic updates."""

    name: Annotated[str, AfterValidator(_zone_name)]
    """Apex of the zone."""
    servers: Annotated[list[Annotated[str, AfterValidator(_server)]], Field(min_length=1)]
    """Primaries of the same data, the preferred one first: `host`, `host:port` or `[v6]:port`."""
    key: KeySettings | None = None
    key_from_record: bool = False
    """Take the key from the Secret in each record's `spec.secretRef`."""
    ownership: str | None = Field(None, pattern=r"^[A-Za-z0-9._/-]{1,63}$")
    """Id in the marks of records, unique per installation. Unset: records have no marks."""
    max_rrsets: int = Field(200, ge=1, le=500)
    """Maximum of changes in one message. More help if the server's disk is slow."""
    max_octets: int = Field(16_384, ge=512, le=16_384)
    """Maximum size of a message in octets."""

    @model_validator(mode="after")
    def _one_source_of_keys(self) -> ZoneSettings:
        if self.key is not None and self.key_from_record:
            raise ValueError(f"zone {self.name}: set either key or key_from_record, not both")
        return self


class DnsSettings(_Settings):
    """All zones, and the timeouts of their servers."""

    zones: list[ZoneSettings]
    resolver_check: bool = False
    """Check whether this host's resolver answers each record; `windowbox trace` shows it."""
    drift_interval: float = Field(600, gt=0)
    """Seconds between two drift checks of all records."""
    message_timeout: float = Field(5, gt=0)
    """Seconds to wait for an answer; a server with a slow disk may need more."""
    patience: float = Field(30, gt=0)
    """Seconds for which a change waits for an unreachable server before its run fails."""
    probe_interval: float = Field(30, gt=0)
    """Seconds between two probes of a zone that refuses every update; grows to ten minutes."""

    @model_validator(mode="after")
    def _each_zone_once(self) -> DnsSettings:
        names = [zone.name for zone in self.zones]
        if doubles := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"zones: {', '.join(sorted(doubles))} is listed more than once")
        return self

    def zone(self, name: str) -> ZoneSettings | None:
        return next((zone for zone in self.zones if zone.name == name), None)
