"""What is written by hand is what dnspython reads, and the other way round."""

from __future__ import annotations

import string

import dns.flags
import dns.message
import dns.opcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import dns.update
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.rules import rule
from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.messages import Update
from windowbox.errors import Malformed
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType

ZONE = "local.gardener.cloud"

labels = st.text(string.ascii_lowercase + string.digits + "_-", min_size=1, max_size=63)
relative = st.lists(labels, max_size=3).map(".".join).filter(lambda name: len(name) < 200)
names = relative.map(lambda name: f"{name}.{ZONE}" if name else ZONE) | st.just(f"*.{ZONE}")
ttls = st.integers(0, 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=700)
VALUES = {
    "A": st.ip_addresses(v=4).map(str),
    "AAAA": st.ip_addresses(v=6).map(str),
    "CNAME": st.lists(labels, min_size=1, max_size=3).map(".".join),
    "TXT": texts,
}


@st.composite
def rrsets(draw: st.DrawFn) -> RecordSet:
    types: tuple[RecordType, ...] = ("A", "AAAA", "CNAME", "TXT")
    record_type = draw(st.sampled_from(types))
    values = draw(st.lists(VALUES[record_type], min_size=1, max_size=5, unique=True))
    return RecordSet(RecordKey(draw(names), record_type), draw(ttls), tuple(values))


operations = st.lists(
    st.tuples(st.sampled_from(["replace", "delete", "present", "absent", "equal"]), rrsets())
)


def ours(plan: list[tuple[str, RecordSet]]) -> bytes:
    update = Update(ZONE)
    for what, wanted in plan:
        record = messages.packed(wanted, ZONE)
        if what == "absent":
            update.guard_absent(record.owner, record.type)
        elif what in ("present", "equal"):
            update.guard_present(record.owner, record.type, record.rdatas if what == "equal" else ())
    for what, wanted in plan:
        record = messages.packed(wanted, ZONE)
        if what == "replace":
            update.replace(record)
        elif what == "delete":
            update.delete(record.owner, record.type)
    return update.finish()


Line = tuple[str, int, int, int, bytes | None]


def read(wire: bytes) -> tuple[list[Line], list[Line]]:
    message = dns.message.from_wire(wire, one_rr_per_rrset=True)
    assert isinstance(message, dns.update.UpdateMessage)
    assert message.zone[0].name.to_text() == ZONE + "."
    assert message.zone[0].rdtype == dns.rdatatype.SOA
    return [_line(r) for r in message.prerequisite], [_line(r) for r in message.update]


def _line(rrset: dns.rrset.RRset) -> Line:
    class_ = rrset.rdclass if rrset.deleting is None else rrset.deleting
    rdata = rrset[0].to_wire() if len(rrset) else None
    return rrset.name.to_text(), class_, rrset.rdtype, rrset.ttl, rdata


def expected(plan: list[tuple[str, RecordSet]]) -> tuple[list[Line], list[Line]]:
    guards: list[Line] = []
    changes: list[Line] = []
    for what, wanted in plan:
        name, number = wanted.key.name + ".", messages.NUMBERS[wanted.key.type]
        match what:
            case "absent":
                guards.append((name, dns.rdataclass.NONE, number, 0, None))
            case "present":
                guards.append((name, dns.rdataclass.ANY, number, 0, None))
            case "equal":
                guards += [(name, dns.rdataclass.IN, number, 0, each) for each in _rdatas(wanted)]
            case _:
                changes.append((name, dns.rdataclass.ANY, number, 0, None))
                if what == "replace":
                    changes += [(name, dns.rdataclass.IN, number, wanted.ttl, r) for r in _rdatas(wanted)]
    return guards, changes


def _rdatas(wanted: RecordSet) -> list[bytes]:
    def text(value: str) -> str:
        if wanted.key.type == "CNAME":
            return value + "."
        if wanted.key.type != "TXT":
            return value
        octets = value.encode()
        chunks = [octets[i : i + 255] for i in range(0, len(octets), 255)] or [b""]
        return " ".join('"' + "".join(f"\\{octet:03}" for octet in chunk) + '"' for chunk in chunks)

    made = [dns.rdata.from_text("IN", wanted.key.type, text(value)) for value in wanted.values]
    return [rdata.to_wire() or b"" for rdata in made]


@settings(max_examples=300, deadline=None)
@given(operations)
@example([("replace", RecordSet(RecordKey(ZONE, "A"), 0, ("1.1.1.1",)))])
def test_dnspython_reads_what_the_encoder_meant(plan: list[tuple[str, RecordSet]]) -> None:
    assert read(ours(plan)) == expected(plan)


@rule("DN-65")
def test_a_message_beyond_the_reach_of_pointers_is_still_right() -> None:
    wanted = [
        RecordSet(RecordKey(f"{n}.{'x' * 60}.{ZONE}", "A"), 60, ("192.0.2.1", "192.0.2.2"))
        for n in range(250)
    ]
    plan = [("replace", each) for each in wanted]
    assert len(ours(plan)) > 0x4000
    assert read(ours(plan)) == expected(plan)


@rule("V18", "DN-65")
def test_a_message_that_is_too_long_is_not_written() -> None:
    update = Update(ZONE)
    for n in range(20):
        update.replace(messages.packed(RecordSet(RecordKey(f"{n}.{ZONE}", "TXT"), 60, ("x" * 4000,)), ZONE))
    with pytest.raises(Malformed, match="too long"):
        update.finish()


@rule("DN-8", "DN-53")
def test_names_are_never_relative_nor_escaped() -> None:
    assert messages.pack_name(f"a.{ZONE}") == b"\1a\5local\x08gardener\5cloud\0"
    assert messages.owner(f"*.{ZONE}", ZONE) == b"\1*\xc0\x0c"
    for name in ("a..b", "x" * 64, "ü", ".".join(["x" * 63] * 4) + ".x"):
        with pytest.raises(Malformed):
            messages.pack_name(name)


def reply_of(wanted: RecordSet) -> bytes:
    query = dns.message.make_query(wanted.key.name + ".", wanted.key.type)
    reply = dns.message.make_response(query)
    reply.flags |= dns.flags.AA
    rrset = dns.rrset.from_rdata_list(
        query.question[0].name,
        wanted.ttl,
        [dns.rdata.from_wire("IN", wanted.key.type, r, 0, len(r)) for r in _rdatas(wanted)],
    )
    reply.answer.append(rrset)
    return reply.to_wire()


@settings(max_examples=200, deadline=None)
@given(rrsets())
def test_the_parser_reads_what_dnspython_wrote(wanted: RecordSet) -> None:
    if wanted.key.type == "CNAME":
        wanted = RecordSet(wanted.key, wanted.ttl, wanted.values[:1])
    found = messages.record_set(wanted.key, messages.parsed(reply_of(wanted)))
    assert found is not None
    assert (found.key, found.ttl, set(found.values)) == (wanted.key, wanted.ttl, set(wanted.values))


@settings(max_examples=300, deadline=None)
@given(rrsets(), st.data())
def test_a_spoilt_reply_is_unreadable_or_read_and_nothing_else(
    wanted: RecordSet, data: st.DataObject
) -> None:
    wire = bytearray(reply_of(wanted))
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    spoilt = bytes(wire[: data.draw(st.integers(0, len(wire)))])
    try:
        reply = messages.parsed(spoilt)
        assert reply.authority is not None
        messages.record_set(wanted.key, reply)
    except ValueError:
        pass


def test_a_name_that_points_at_itself_ends() -> None:
    circle = messages.query(b"\xc0\x0c", messages.A)
    with pytest.raises(ValueError, match="cannot be read"):
        messages.parsed(circle[:6] + b"\0\1" + circle[8:] + circle[12:] + b"\0\0\0\0\0\0")


def test_odd_octets_in_names_are_shown_as_numbers() -> None:
    assert messages.name_text(b"\4a.b \1c\0") == "a\\046b\\032.c"
