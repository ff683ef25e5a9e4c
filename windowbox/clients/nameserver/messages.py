"""DNS messages, written and read by hand: the few kinds that changing records takes.

A general library spends a hundred times as long on each record, which would make this process, and not
the name server, the limit.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from ipaddress import IPv6Address
from typing import NamedTuple

from windowbox.errors import Malformed
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType

A, NS, CNAME, SOA, TXT, AAAA, AXFR, ANY = 1, 2, 5, 6, 16, 28, 252, 255
NUMBERS: dict[RecordType, int] = {"A": A, "AAAA": AAAA, "CNAME": CNAME, "TXT": TXT}
NAMES = {A: "A", NS: "NS", CNAME: "CNAME", SOA: "SOA", TXT: "TXT", AAAA: "AAAA", 15: "MX", 33: "SRV"}

_LENGTHS = {A: 4, AAAA: 16}

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
YXDOMAIN, YXRRSET, NXRRSET, NOTAUTH, NOTZONE = range(6, 11)
RCODES = (
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED",
    "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE",
)  # fmt: skip

MAX_MESSAGE = 65_535 - 400
"""What a TCP message may hold, less the room that a signature needs."""

_IN, _NONE, _ANY = 1, 254, 255
_UPDATE = 0x2800
_POINTER = 0xC000
_ZONE = b"\xc0\x0c"  # the zone section's name follows the header of 12 octets
_REACH = 0x3FFF  # a pointer has 14 bits
_record = struct.Struct("!HHIH")
_pointed = struct.Struct("!HHHIH")
_header = struct.Struct("!HHHHHH")
_question = struct.Struct("!HH")
_QUERY = _header.pack(0, 0, 1, 0, 0, 0)


class Packed(NamedTuple):
    """An RRset as it travels: made once, then used to write, to guard and to compare."""

    name: bytes
    """In full."""
    owner: bytes
    """As a message about the zone shortens it: with a pointer to the zone's name."""
    type: int
    ttl: int
    rdatas: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Octets in an update that replaces the whole set, at most."""
        return len(self.owner) + 10 + sum(12 + len(rdata) for rdata in self.rdatas)


def packed(wanted: RecordSet, zone: str) -> Packed:
    number = NUMBERS[wanted.key.type]
    rdatas = tuple(_rdata(number, value) for value in wanted.values)
    result = Packed(pack_name(wanted.key.name), owner(wanted.key.name, zone), number, wanted.ttl, rdatas)
    if result.size > MAX_MESSAGE - 600:
        raise Malformed(
            f"the values of {wanted.key.name} {wanted.key.type} take {result.size} octets, "
            "more than one DNS message holds: spread them over several names"
        )
    return result


def pack_name(name: str) -> bytes:
    """`name` in full, ending with the root."""
    return _labels(name) + b"\0"


def owner(name: str, zone: str) -> bytes:
    """`name` as a message about `zone` may shorten it."""
    if name == zone:
        return _ZONE
    if name.endswith("." + zone):
        return _labels(name[: -len(zone) - 1]) + _ZONE
    return pack_name(name)


def _labels(name: str) -> bytes:
    if not name:
        return b""
    packed = bytearray()
    for label in name.encode("ascii", "replace").split(b"."):
        length = len(label)
        if not 0 < length < 64:
            raise Malformed(f"{name[:60]!r} cannot be a DNS name")
        packed.append(length)
        packed += label
    if len(packed) > 254 or not name.isascii():
        raise Malformed(f"{name[:60]!r} cannot be a DNS name")
    return bytes(packed)


def _rdata(number: int, value: str) -> bytes:
    if number == A:
        return socket.inet_aton(value)
    if number == AAAA:
        return IPv6Address(value).packed
    if number == CNAME:
        return pack_name(value)
    return text_rdata(value)


def text_rdata(text: str) -> bytes:
    """`text` in strings of at most 255 octets."""
    octets = text.encode("utf-8", "surrogateescape")
    chunks = [octets[start : start + 255] for start in range(0, len(octets), 255)] or [b""]
    return b"".join(bytes((len(chunk),)) + chunk for chunk in chunks)


class Update:
    """An UPDATE message in the making: first its guards, then its changes, in their order."""

    def __init__(self, zone: str) -> None:
        self._buffer = bytearray(12) + pack_name(zone) + _question.pack(SOA, _IN)
        self._guards = 0
        self._changes = 0

    def guard_absent(self, owner: bytes, number: int) -> None:
        """Refuse the whole message with YXRRSET if `owner` has records of this type."""
        self._guard(owner, number, _NONE)

    def guard_present(self, owner: bytes, number: int, rdatas: Sequence[bytes] = ()) -> None:
        """Refuse the whole message with NXRRSET unless the RRset exists, and equals `rdatas` if given."""
        if not rdatas:
            self._guard(owner, number, _ANY)
        for rdata in rdatas:
            self._guard(owner, number, _IN, rdata)

    def replace(self, new: Packed) -> None:
        """Delete what is there and add what is wanted: readers see the old set or the new one, never none."""
        start = len(self._buffer)
        self.delete(new.owner, new.type)
        self._changes += len(new.rdatas)
        if start > _REACH:
            self._add_in_full(new)
            return
        pointer = int.from_bytes(new.owner, "big") if new.owner == _ZONE else _POINTER | start
        for rdata in new.rdatas:
            self._buffer += _pointed.pack(pointer, new.type, _IN, new.ttl, len(rdata)) + rdata

    def delete(self, owner: bytes, number: int) -> None:
        """Delete all records of one type; harmless if there are none."""
        self._buffer += owner + _record.pack(number, _ANY, 0, 0)
        self._changes += 1

    def finish(self) -> bytes:
        if len(self._buffer) > MAX_MESSAGE:
            raise Malformed(f"a DNS message of {len(self._buffer)} octets is too long: spread the values")
        _header.pack_into(self._buffer, 0, 0, _UPDATE, 1, self._guards, self._changes, 0)
        return bytes(self._buffer)

    def _add_in_full(self, new: Packed) -> None:
        for rdata in new.rdatas:
            self._buffer += new.owner + _record.pack(new.type, _IN, new.ttl, len(rdata)) + rdata

    def _guard(self, owner: bytes, number: int, class_: int, rdata: bytes = b"") -> None:
        assert not self._changes, "the guards of a message come before its changes"
        self._buffer += owner + _record.pack(number, class_, 0, len(rdata)) + rdata
        self._guards += 1


def query(name: bytes, number: int) -> bytes:
    """Ask a server for what it knows itself: no recursion is desired."""
    return _QUERY + name + _question.pack(number, _IN)


class Record(NamedTuple):
    owner: bytes
    """In full and in lower case."""
    type: int
    ttl: int
    rdata: bytes
    """Names in it in full, in lower case."""


class Reply:
    """What a server answered. The sections behind the answers are only read when somebody asks for them."""

    __slots__ = ("_counts", "_wire", "answers", "authoritative", "authority_start", "rcode")

    def __init__(self, wire: bytes) -> None:
        _, flags, questions, *self._counts, _ = _header.unpack_from(wire)
        self.rcode: int = flags & 0xF
        self.authoritative = bool(flags & 0x0400)
        self._wire = wire
        self.answers: list[Record] = []
        self.authority_start = 12
        if flags & 0x7800 == 0:  # an answer to an UPDATE holds nothing of interest
            for _ in range(questions):
                self.authority_start = _skip_name(wire, self.authority_start) + 4
            self.authority_start = _read(wire, self.authority_start, self._counts[0], self.answers)

    @property
    def authority(self) -> list[Record]:
        """Raises ValueError where the octets make no sense."""
        records: list[Record] = []
        with _sense(self._wire):
            _read(self._wire, self.authority_start, self._counts[1], records)
        return records

    def values(self, name: bytes, number: int) -> tuple[set[bytes], int]:
        """What the server itself answers for exactly this name and type, and with which TTL."""
        found = [record for record in self.answers if record.type == number and record.owner == name]
        return {record.rdata for record in found}, found[0].ttl if found else 0


def parsed(wire: bytes) -> Reply:
    """Raises ValueError where the octets make no sense."""
    with _sense(wire):
        return Reply(wire)


@contextlib.contextmanager
def _sense(wire: bytes) -> Iterator[None]:
    try:
        yield
    except (IndexError, struct.error) as error:
        raise ValueError(f"a reply of {len(wire)} octets cannot be read") from error


def last_record(wire: bytes) -> int | None:
    """Where the last record of the additional section starts: a signature's place."""
    with _sense(wire):
        _, _, questions, *counts = _header.unpack_from(wire)
        place = 12
        for _ in range(questions):
            place = _skip_name(wire, place) + 4
        for _ in range(sum(counts) - 1):
            place = _skip_name(wire, place) + 10
            place += int.from_bytes(wire[place - 2 : place], "big")
        return place if counts[-1] else None


def _read(wire: bytes, place: int, count: int, into: list[Record]) -> int:
    for _ in range(count):
        name, place = _name(wire, place)
        number, _, ttl, length = _record.unpack_from(wire, place)
        place += 10
        if len(wire) < place + length or length != _LENGTHS.get(number, length):
            raise IndexError
        into.append(Record(name, number, ttl, _expanded(wire, place, length, number)))
        place += length
    return place


def _expanded(wire: bytes, place: int, length: int, number: int) -> bytes:
    if number in (CNAME, NS):
        return _name(wire, place)[0]
    if number == SOA:
        return wire[place + length - 20 : place + length]
    return wire[place : place + length]


def _name(wire: bytes, place: int) -> tuple[bytes, int]:
    """The name at `place` in full and in lower case, and the place behind it."""
    parts: list[bytes] = []
    behind = 0
    for _ in range(128):  # no name has more labels: whatever takes longer runs in circles
        length = wire[place]
        if length >= 0xC0:
            behind = behind or place + 2
            place = (length & 0x3F) << 8 | wire[place + 1]
        elif length:
            parts.append(wire[place : place + length + 1])
            place += length + 1
        else:
            return b"".join(parts).lower() + b"\0", behind or place + 1
    raise IndexError


def _skip_name(wire: bytes, place: int) -> int:
    while length := wire[place]:
        if length >= 0xC0:
            return place + 2
        place += length + 1
    return place + 1


def name_text(name: bytes) -> str:
    """A full name on the wire as text; octets that no host name has are written as \\DDD."""
    return ".".join(
        "".join(chr(c) if 33 <= c < 127 and c not in b'."\\' else f"\\{c:03}" for c in label)
        for label in _labels_of(name)
    )


def _labels_of(name: bytes) -> Iterator[bytes]:
    place = 0
    while length := name[place]:
        yield name[place + 1 : place + 1 + length]
        place += length + 1


def value_text(number: int, rdata: bytes) -> str:
    if number == A:
        return socket.inet_ntoa(rdata)
    if number == AAAA:
        return str(IPv6Address(rdata))
    if number == CNAME:
        return name_text(rdata)
    return text_of(rdata)


def text_of(rdata: bytes) -> str:
    """The strings of a TXT record, joined."""
    octets, place = b"", 0
    while place < len(rdata):
        octets += rdata[place + 1 : place + 1 + rdata[place]]
        place += 1 + rdata[place]
    return octets.decode("utf-8", "surrogateescape")


def record_set(key: RecordKey, reply: Reply) -> RecordSet | None:
    """What `reply` says about `key`, or None if there is nothing."""
    number = NUMBERS[key.type]
    rdatas, ttl = reply.values(pack_name(key.name), number)
    if not rdatas or not reply.authoritative:
        return None
    ordered = sorted(rdatas) if number in (A, AAAA) else sorted(rdatas, key=lambda r: value_text(number, r))
    return RecordSet(key, ttl, tuple(value_text(number, rdata) for rdata in ordered))


def serial(soa: bytes) -> int:
    return int.from_bytes(soa[:4], "big")
