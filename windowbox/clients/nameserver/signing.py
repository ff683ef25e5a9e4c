"""TSIG: signs requests, and verifies the signatures of responses."""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import hashlib
import re
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import dns.exception
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.tsig
import dns.wire
from dns.rdtypes.ANY.TSIG import TSIG

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.classify import PERSON_SOON, SLOW, Failure, Scope, ZoneFailed
from windowbox.errors import Malformed, TransientError, Unreachable
from windowbox.settings.dnssettings import Algorithm, KeySettings

FUDGE = 300
"""Seconds by which the clocks of both sides may differ."""
# The name of a key is told in errors, so what cannot be one, such as a secret in its place, is refused.
_NAME = re.compile(r"[a-z0-9._-]+")
_UNSIGNED = {messages.FORMERR, messages.SERVFAIL, messages.NOTIMP, messages.REFUSED, messages.NOTAUTH}


def now() -> int:
    return int(time.time())


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
        name = _text(data, "TSIGKeyName").lower().removesuffix(".")
        encoded = _text(data, "TSIGSecret")
        try:
            if not _NAME.fullmatch(name):
                raise Malformed("no letters, digits, dots and hyphens only")
            messages.pack_name(name)
            secret = base64.b64decode(encoded, validate=True)
        except Malformed:
            raise Malformed(
                "TSIGKeyName in the Secret is not a DNS name: copy it from the key's file"
            ) from None
        except (binascii.Error, ValueError):
            secret = b""
        if not secret:
            raise Malformed("TSIGSecret in the Secret is not base64 text: copy it from the key's file")
        return cls(name, _algorithm(data), secret)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Tells keys apart without giving them away."""
        return hashlib.sha256(b"\0".join((self.algorithm.encode(), self.secret))).hexdigest()[:16]


def _text(data: Mapping[str, bytes], name: str) -> str:
    text = data.get(name, b"").decode("ascii", "replace").strip()
    if not text:
        raise Malformed(f"the Secret has no {name}: it needs TSIGKeyName and TSIGSecret")
    return text


def _algorithm(data: Mapping[str, bytes]) -> Algorithm:
    given = data.get("TSIGSecretAlgorithm", b"").decode("ascii", "replace").strip().lower().removesuffix(".")
    for known in get_args(Algorithm):
        if (given or "hmac-sha256") == known:
            algorithm: Algorithm = known
            return algorithm
    # What was given is not repeated: it may be the secret, in the wrong place.
    raise Malformed(f"TSIGSecretAlgorithm in the Secret is unknown: use {', '.join(get_args(Algorithm))}")


class Signer:
    """Signs what goes to one server, and checks what comes back."""

    def __init__(self, key: TsigKey, server: str) -> None:
        self._key = dns.tsig.Key(f"{key.name}.", key.secret, f"{key.algorithm}.")
        self._name = key
        self._server = server
        self._prefix = messages.pack_name(key.name) + struct.pack("!HHI", dns.rdatatype.TSIG, 255, 0)

    def sign(self, wire: bytes) -> tuple[bytes, bytes]:
        """The message with its signature, and the code that the reply's signature will cover."""
        message_id = int.from_bytes(wire[:2], "big")
        blank = TSIG(  # type: ignore[no-untyped-call]
            dns.rdataclass.ANY, dns.rdatatype.TSIG, self._key.algorithm, now(), FUDGE, b"", message_id, 0, b""
        )
        signed, _ = dns.tsig.sign(wire, self._key, blank, blank.time_signed)  # type: ignore[no-untyped-call]
        rdata = signed.to_wire()
        additional = int.from_bytes(wire[10:12], "big") + 1
        head = wire[:10] + additional.to_bytes(2, "big") + wire[12:]
        return head + self._prefix + len(rdata).to_bytes(2, "big") + rdata, signed.mac

    def verify(self, wire: bytes, request_mac: bytes) -> None:
        """Raise unless `wire` answers the request with this code, and was signed with our key.

        An answer that only says that nothing was done may come unsigned: it cannot pretend success.
        """
        with self._translated():
            signature = _signature(wire)
            if signature is None:
                if wire[3] & 0xF not in _UNSIGNED:
                    raise dns.exception.FormError("the reply has no signature")  # type: ignore[no-untyped-call]
                return
            start, owner, rdata = signature
            if rdata.error == dns.rcode.BADTIME and len(rdata.other) == 6:
                raise ZoneFailed(self._clocks(int.from_bytes(rdata.other, "big") - now()))
            dns.tsig.validate(wire, self._key, owner, rdata, now(), request_mac, start)  # type: ignore[no-untyped-call]

    def verify_next(self, wire: bytes, request_mac: bytes, before: Any) -> Any:
        """The same for one of the many messages of an answer. Returns what to give for the next one.

        The server need not sign each: the next signature covers those that had none.
        """
        with self._translated():
            signature = _signature(wire)
            if signature is None:
                if before is None:
                    raise dns.exception.FormError("the reply has no signature")  # type: ignore[no-untyped-call]
                before.update(wire)
                return before
            start, owner, rdata = signature
            return dns.tsig.validate(  # type: ignore[no-untyped-call]
                wire, self._key, owner, rdata, now(), request_mac, start, before, True
            )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (dns.tsig.PeerBadKey, dns.tsig.BadKey, dns.tsig.BadAlgorithm) as error:
            raise ZoneFailed(
                self._failure(
                    f"TSIG key {self._name.name} ({self._name.algorithm}) is not known to {self._server}: "
                    "correct its name or algorithm, or add it to the server"
                )
            ) from error
        except (dns.tsig.PeerBadSignature, dns.tsig.PeerBadTruncation) as error:
            raise ZoneFailed(
                self._failure(f"the TSIG secret of key {self._name.name} is not the one {self._server} has")
            ) from error
        except (dns.tsig.PeerBadTime, dns.tsig.BadTime) as error:
            raise ZoneFailed(self._clocks(None)) from error
        except (dns.tsig.BadSignature, dns.exception.FormError) as error:
            raise ZoneFailed(
                self._failure(
                    f"an answer of {self._server} is not signed with TSIG key {self._name.name}: "
                    "find out who answers in its place"
                )
            ) from error
        except (dns.exception.DNSException, ValueError) as error:
            raise Unreachable(f"{self._server} answers what nobody can read: {error}") from error

    def _clocks(self, difference: int | None) -> Failure:
        by = "" if difference is None else f" by {abs(difference)} s"
        return self._failure(f"our clock differs from that of {self._server}{by}: set both by NTP")

    def _failure(self, text: str) -> Failure:
        return Failure(TransientError, text, PERSON_SOON, SLOW, Scope.ZONE)


def _signature(wire: bytes) -> tuple[int, dns.name.Name, TSIG] | None:
    start = messages.last_record(wire)
    if start is None:
        return None
    parser = dns.wire.Parser(wire, start)
    owner = parser.get_name()
    number, class_, _, length = parser.get_struct("!HHIH")
    if number != dns.rdatatype.TSIG:
        return None
    with parser.restrict_to(length):
        rdata = TSIG.from_wire_parser(class_, number, parser)  # type: ignore[no-untyped-call]
    return start, owner, rdata
