"""Update messages (RFC 2136), written in octets: dnspython takes twenty times as long for them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from dns.rdataclass import ANY, IN, NONE
from dns.rdatatype import RdataType

from windowbox.clients.nameserver import messages
from windowbox.models.recordsets import RecordSet

_UPDATE = 5 << 11
_POINTER, _FARTHEST = 0xC000, 0x3FFF
"""A name can end with a pointer to one within the first octets of the message."""
_RECORD = struct.Struct("!HHI")


class Update:
    """What one transaction requires of the zone, and then changes in it. Names are texts."""

    def __init__(self, zone: str) -> None:
        self._places: dict[str, int] = {}
        """Where names, and the ends of names, begin."""
        self._octets = bytearray(12)
        self._requirements = self._changes = 0
        self._octets += self._name(zone) + struct.pack("!HH", RdataType.SOA, IN)

    def absent(self, name: str, number: RdataType) -> None:
        """Require that there is no such record set. Requirements come before changes."""
        self._write(name, number, NONE)
        self._requirements += 1

    def present(self, name: str, number: RdataType, values: Iterable[bytes]) -> None:
        """Require that the record set has exactly these values."""
        for value in values:
            self._write(name, number, IN, 0, value)
            self._requirements += 1

    def delete(self, name: str, number: RdataType) -> None:
        self._write(name, number, ANY)
        self._changes += 1

    def replace(self, wanted: RecordSet) -> None:
        name, number = wanted.key.name, RdataType[wanted.key.type]
        self.delete(name, number)
        for value in messages.values(wanted):
            self._write(name, number, IN, wanted.ttl, value)
            self._changes += 1

    def octets(self) -> bytes:
        """The message, with 0 as its id."""
        struct.pack_into("!HHHHHH", self._octets, 0, 0, _UPDATE, 1, self._requirements, self._changes, 0)
        return bytes(self._octets)

    def _write(self, name: str, number: int, of: int, ttl: int = 0, value: bytes = b"") -> None:
        self._octets += self._name(name)
        self._octets += _RECORD.pack(number, of, ttl) + len(value).to_bytes(2, "big") + value

    def _name(self, text: str) -> bytes:
        """The name in octets, with a pointer to what is written already. Malformed if it is none."""
        messages.name(text)
        begin, octets = len(self._octets), b""
        while text:
            if (place := self._places.get(text)) is not None:
                return octets + (_POINTER | place).to_bytes(2, "big")
            if begin + len(octets) <= _FARTHEST:
                self._places[text] = begin + len(octets)
            label, _, text = text.partition(".")
            octets += bytes((len(label),)) + label.encode("ascii")
        return octets + b"\0"
