"""TSIG: the keys of zones, and answers whose signature is verified."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import re
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import dns.exception
import dns.message
import dns.tsig
from dns.message import Message
from dns.rcode import Rcode
from dns.rdataclass import ANY
from dns.rdatatype import RdataType

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.classify import Failure, ZoneFailed, zone_wide
from windowbox.errors import Malformed, Unreachable
from windowbox.settings.dnssettings import Algorithm, KeySettings

# Errors show the name of a key, so a name that may be a misplaced secret is refused.
_NAME = re.compile(r"[a-z0-9._-]+")
# These answers say that nothing was done. Servers send them unsigned, and they cannot pretend success.
_UNSIGNED = {Rcode.FORMERR, Rcode.SERVFAIL, Rcode.NOTIMP, Rcode.REFUSED, Rcode.NOTAUTH}

_TSIG, _ANY_CLASS = RdataType.TSIG.to_bytes(2, "big"), struct.pack("!HI", ANY, 0)
"""The type of a signature; its class and TTL."""
_NO_ERROR = bytes(4)
"""Error 0, and no other data."""
_FUDGE = 300
_DONE = struct.pack("!HHHHH", 0xA800, 1, 0, 0, 0)
"""The header of a NOERROR to an update, after its id and without its signature."""


@dataclass(frozen=True)
class TsigKey:
    """A shared secret and its name. The secret shows up in no text."""

    name: str
    algorithm: Algorithm
    secret: bytes = field(repr=False)

    @classmethod
    def from_settings(cls, settings: KeySettings) -> TsigKey:
        return cls(settings.name, settings.algorithm, base64.b64decode(settings.secret.get_secret_value()))

    @classmethod
    def from_secret_data(cls, data: Mapping[str, bytes]) -> TsigKey:
        """The key in a Secret with `TSIGKeyName`, `TSIGSecret` (base64 text) and `TSIGSecretAlgorithm`."""
        texts = {field: octets.decode("ascii", "replace").strip() for field, octets in data.items()}
        for needed in ("TSIGKeyName", "TSIGSecret"):
            if not texts.get(needed):
                raise Malformed(f"the Secret has no {needed}: it needs TSIGKeyName and TSIGSecret")
        name = texts["TSIGKeyName"].lower().removesuffix(".")
        try:
            if not _NAME.fullmatch(name):
                raise Malformed("no letters, digits, dots and hyphens only")
            messages.name(name)
        except Malformed:
            raise Malformed(
                "TSIGKeyName in the Secret is not a DNS name: copy it from the key's file"
            ) from None
        try:
            secret = base64.b64decode(texts["TSIGSecret"], validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        if not secret:
            raise Malformed("TSIGSecret in the Secret is not base64 text: copy it from the key's file")
        given = texts.get("TSIGSecretAlgorithm", "").lower().removesuffix(".") or "hmac-sha256"
        for algorithm in get_args(Algorithm):
            if given == algorithm:
                return cls(name, algorithm, secret)
        # The error does not repeat the value: it may be the secret, in the wrong place.
        raise Malformed(f"TSIGSecretAlgorithm in the Secret is unknown: use {', '.join(get_args(Algorithm))}")

    @functools.cached_property
    def fingerprint(self) -> str:
        """Distinguishes keys without revealing them."""
        return hashlib.sha256(b"\0".join((self.algorithm.encode(), self.secret))).hexdigest()[:16]

    @functools.cached_property
    def ring(self) -> dns.tsig.Key:
        """The key for dnspython, whose own `repr` shows the secret."""
        return dns.tsig.Key(messages.name(self.name), self.secret, f"{self.algorithm}.")

    @functools.cached_property
    def owner(self) -> bytes:
        """The name in octets, in lower case as it is signed."""
        return bytes(self.ring.name.to_digestable())

    @functools.cached_property
    def method(self) -> bytes:
        """The name of the algorithm in octets."""
        return bytes(self.ring.algorithm.to_digestable())

    def mac(self, message: bytes, moment: bytes, asked: bytes = b"") -> bytes:
        """The MAC of a message without a signature (RFC 8945, 4.3), signed at `moment`, a time and its fudge.

        That of an answer covers `asked`, the MAC of the request.
        """
        digest = dns.tsig.get_context(self.ring)  # type: ignore[no-untyped-call]
        if asked:
            digest.update(len(asked).to_bytes(2, "big") + asked)
        digest.update(message)
        digest.update(self.owner + _ANY_CLASS + self.method + moment + _NO_ERROR)
        return bytes(digest.sign())


def signed(message: bytes, key: TsigKey) -> tuple[bytes, bytes]:
    """The message, which has no additional records, with its signature; and the MAC in that."""
    moment = int(time.time()).to_bytes(6, "big") + _FUDGE.to_bytes(2, "big")
    mac = key.mac(message, moment)
    return _with_signature(message, moment, mac, key), mac


def accepted(reply: bytes, message: bytes, mac: bytes, key: TsigKey) -> bool:
    """Whether `reply` says, signed with `key`, that the update `message` is done; `mac` is the latter's.

    False is no proof of the contrary: `verified` finds out what the reply says.
    """
    # A header, the zone section again, and a signature: the server's time is all that is not known before.
    zone_ends = message.index(b"\0", 12) + 5
    bare = message[:2] + _DONE + message[12:zone_ends]
    place = len(bare) + len(key.owner) + 10 + len(key.method)
    moment = reply[place : place + 8]
    away = abs(int.from_bytes(moment[:6], "big") - int(time.time()))
    if len(moment) < 8 or away > int.from_bytes(moment[6:], "big"):
        return False
    expected = _with_signature(bare, moment, key.mac(bare, moment, mac), key)
    return hmac.compare_digest(reply, expected)


def parsed(message: bytes, key: TsigKey | None) -> Message:
    """One of our own messages as dnspython reads it, with its MAC."""
    return dns.message.from_wire(message, keyring=key.ring if key else None)


def _with_signature(message: bytes, moment: bytes, mac: bytes, key: TsigKey) -> bytes:
    data = b"".join((key.method, moment, len(mac).to_bytes(2, "big"), mac, message[:2], _NO_ERROR))
    record = b"".join((key.owner, _TSIG, _ANY_CLASS, len(data).to_bytes(2, "big"), data))
    return b"".join((message[:10], b"\0\1", message[12:], record))


def verified(wire: bytes, request: Message, key: TsigKey | None, server: str, context: Any = None) -> Message:
    """The answer of `server` to `request`; with a `key`, signed with it.

    For each further message of a zone transfer, `context` is the `tsig_ctx` of the message before. Such a
    message may be unsigned: the next signature covers it.
    Raises ZoneFailed if the signature is wrong, Unreachable if the answer cannot be read.
    """
    try:
        reply = dns.message.from_wire(
            wire,
            keyring=key.ring if key else None,
            request_mac=request.mac or b"",
            tsig_ctx=context,
            multi=True,  # accepts unsigned messages, which are judged below
            # The first and the last record of a transfer are equal, and would become one.
            one_rr_per_rrset=request.question[0].rdtype == RdataType.AXFR,
        )
    except (dns.exception.DNSException, ValueError) as error:
        failure = _signature_failure(error, key, server, wire) if key else None
        if failure is not None:
            raise ZoneFailed(failure) from error
        raise Unreachable(f"{server} sent an unreadable reply: {error}") from error
    if key and context is None and not reply.had_tsig and reply.rcode() not in _UNSIGNED:
        raise ZoneFailed(unsigned(key, server))
    return reply


def unsigned(key: TsigKey, server: str) -> Failure:
    return zone_wide(
        f"an answer of {server} is not signed with TSIG key {key.name}: "
        "find the program that answers in its place"
    )


def _signature_failure(error: Exception, key: TsigKey, server: str, wire: bytes) -> Failure | None:
    match error:
        case dns.tsig.PeerBadKey() | dns.tsig.BadKey() | dns.tsig.BadAlgorithm():
            return zone_wide(
                f"TSIG key {key.name} ({key.algorithm}) is not known to {server}: "
                "correct its name or algorithm, or add it to the server"
            )
        case dns.tsig.PeerBadSignature() | dns.tsig.PeerBadTruncation():
            return zone_wide(f"the TSIG secret of key {key.name} is not the one {server} has")
        case dns.tsig.PeerBadTime() | dns.tsig.BadTime():
            # A server that answers BADTIME ends its message with its time: 6 octets, preceded by their count.
            known = isinstance(error, dns.tsig.PeerBadTime) and wire[-8:-6] == b"\0\6"
            by = f" by {abs(int.from_bytes(wire[-6:], 'big') - int(time.time()))} s" if known else ""
            return zone_wide(f"our clock differs from that of {server}{by}: set both by NTP")
        case dns.tsig.BadSignature():
            return unsigned(key, server)
        case _:
            return None
