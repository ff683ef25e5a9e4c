"""Names, record sets and queries for dnspython, and what its answers say in this project's values."""

from __future__ import annotations

import functools
from ipaddress import ip_address

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rdata
import dns.rrset
from dns.message import Message
from dns.name import Name
from dns.rcode import Rcode
from dns.rdata import Rdata
from dns.rdataclass import IN
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.TXT import TXT
from dns.rdtypes.IN.A import A
from dns.rdtypes.IN.AAAA import AAAA
from dns.rrset import RRset

from windowbox.errors import Malformed
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType

_MAX_OCTETS = 65_535 - 1_000
"""A TCP message holds 65,535 octets; the header, an owner's mark and a signature need room too."""


@functools.lru_cache(maxsize=4096)  # each change asks for the names of its record, its mark and its zone
def name(text: str) -> Name:
    """The absolute name. Raises Malformed if it cannot be one."""
    # dns.name.from_text would read backslashes as escapes, and translate what is not ASCII.
    try:
        return Name([*text.encode("ascii").split(b"."), b""])
    except (UnicodeEncodeError, dns.exception.DNSException) as error:
        raise Malformed(f"{text[:60]!r} cannot be a DNS name") from error


def name_text(name: Name) -> str:
    """The name in lower case, without the final dot."""
    return name.canonicalize().to_text(omit_final_dot=True)


def rrset(wanted: RecordSet) -> RRset:
    """The record set for dnspython."""
    number = RdataType[wanted.key.type]
    rdatas = [dns.rdata.from_wire(IN, number, value, 0, len(value)) for value in values(wanted)]
    return dns.rrset.from_rdata_list(name(wanted.key.name), wanted.ttl, rdatas)


def check(wanted: RecordSet) -> None:
    """Raises Malformed if the record set cannot be one, or does not fit a message."""
    name(wanted.key.name)
    if (size := octets(wanted)) > _MAX_OCTETS:
        raise Malformed(
            f"the values of {wanted.key.name} {wanted.key.type} take {size} octets, "
            "more than one DNS message holds: spread them over several names"
        )


def values(wanted: RecordSet) -> list[bytes]:
    """The values in octets, each once."""
    # They take no way through the text of zone files, in which they would have to be escaped.
    return list(dict.fromkeys(_value(wanted.key.type, value) for value in wanted.values))


def _value(record_type: RecordType, value: str) -> bytes:
    match record_type:
        case "CNAME":
            return name(value).to_wire() or b""
        case "TXT":
            text = value.encode("utf-8", "surrogateescape")
            chunks = [text[start : start + 255] for start in range(0, len(text), 255)] or [b""]
            return b"".join(bytes((len(chunk),)) + chunk for chunk in chunks)
        case _:
            return ip_address(value).packed


def octets(wanted: RecordSet) -> int:
    """Octets that a replacement of the record set takes in an update, at most."""
    return len(wanted.key.name) + 2 + 10 + sum(12 + len(value) for value in values(wanted))


def query(name: Name, number: RdataType) -> Message:
    """Ask a server for what it knows itself: no recursion is desired."""
    return dns.message.make_query(name, number, flags=0)


def answer(reply: Message, name: Name, number: RdataType) -> RRset | None:
    """The answer for exactly this name and type."""
    return reply.get_rrset(reply.answer, name, IN, number)


def authoritative(reply: Message) -> bool:
    return bool(reply.flags & dns.flags.AA)


def record_set(key: RecordKey, reply: Message) -> RecordSet | None:
    """The record set that an authoritative `reply` holds for `key`."""
    found = answer(reply, name(key.name), RdataType[key.type])
    if found is None or not authoritative(reply):
        return None
    values = [text(rdata) for rdata in found]
    ordered = sorted(values, key=ip_address) if key.type in ("A", "AAAA") else sorted(values)
    return RecordSet(key, found.ttl, tuple(ordered))


def text(rdata: Rdata) -> str:
    """A value as it stands in a RecordSet."""
    match rdata:
        case A() | AAAA():
            return str(ip_address(rdata.address))
        case CNAME():
            return name_text(rdata.target)
        case TXT():
            return b"".join(rdata.strings).decode("utf-8", "surrogateescape")
        case _:
            return rdata.to_text()


def rcode_text(rcode: Rcode) -> str:
    return rcode.name if rcode <= Rcode.NOTZONE else f"RCODE{int(rcode)}"
