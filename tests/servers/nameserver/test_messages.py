"""Names and values come through dnspython as they are, whatever octets they hold."""

from __future__ import annotations

import contextlib
import string

import dns.flags
import dns.message
import pytest
from dns.message import Message
from dns.name import Name
from dns.rdatatype import RdataType
from dns.update import UpdateMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.tsig import verified
from windowbox.errors import Malformed, Unreachable
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
def record_sets(draw: st.DrawFn) -> RecordSet:
    types: tuple[RecordType, ...] = ("A", "AAAA", "CNAME", "TXT")
    record_type = draw(st.sampled_from(types))
    most = 1 if record_type == "CNAME" else 5
    values = draw(st.lists(VALUES[record_type], min_size=1, max_size=most, unique=True))
    return RecordSet(RecordKey(draw(names), record_type), draw(ttls), tuple(values))


def query(wanted: RecordSet) -> Message:
    return messages.query(messages.name(wanted.key.name), RdataType[wanted.key.type])


def reply_of(wanted: RecordSet) -> bytes:
    reply = dns.message.make_response(query(wanted))
    reply.id = 0
    reply.flags |= dns.flags.AA
    reply.answer.append(messages.rrset(wanted))
    return reply.to_wire()


@settings(max_examples=300, deadline=None)
@given(record_sets())
def test_values_come_back_as_they_went(wanted: RecordSet) -> None:
    reply = verified(reply_of(wanted), query(wanted), None, "the server")
    found = messages.record_set(wanted.key, reply)
    assert found is not None
    assert (found.key, found.ttl, set(found.values)) == (wanted.key, wanted.ttl, set(wanted.values))


@cases(
    "text octets",
    ("letters-that-zone-files-escape", 'a "b" \\032 ; @', b'\x0ea "b" \\032 ; @'),
    ("octets-that-are-no-utf-8", "ü\udcff", b"\3\xc3\xbc\xff"),
    ("two-strings", "x" * 256, b"\xff" + b"x" * 255 + b"\1x"),
    ("empty", "", b"\0"),
)
def test_texts_are_not_escaped(text: str, octets: bytes) -> None:
    made = messages.rrset(RecordSet(RecordKey(f"x.{ZONE}", "TXT"), 60, (text,)))
    assert made[0].to_wire() == octets
    assert messages.text(made[0]) == text


@settings(max_examples=300, deadline=None)
@given(record_sets(), st.data())
def test_a_spoilt_reply_is_unreadable_or_read_and_nothing_else(
    wanted: RecordSet, data: st.DataObject
) -> None:
    wire = bytearray(reply_of(wanted))
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    spoilt = bytes(wire[: data.draw(st.integers(0, len(wire)))])
    with contextlib.suppress(Unreachable):
        messages.record_set(wanted.key, verified(spoilt, query(wanted), None, "the server"))


@rule("DN-65")
def test_the_octets_of_an_update_are_not_underestimated() -> None:
    wanted = [
        RecordSet(RecordKey(f"{n}.{'x' * 60}.{ZONE}", "A"), 60, ("192.0.2.1", "192.0.2.2"))
        for n in range(400)
    ]
    update = UpdateMessage(messages.name(ZONE))
    empty = len(update.to_wire())
    for each in map(messages.rrset, wanted):
        update.replace(each.name, each.to_rdataset())
    wire = update.to_wire()
    assert 0x4000 < len(wire) <= empty + sum(messages.octets(messages.rrset(each)) for each in wanted)
    read = dns.message.from_wire(wire)
    assert isinstance(read, UpdateMessage)
    assert [rrset.name for rrset in read.update[::3]] == [messages.name(each.key.name) for each in wanted]


@rule("DN-8", "DN-53")
def test_names_are_never_relative_nor_escaped() -> None:
    assert messages.name(f"a.{ZONE}").to_wire() == b"\1a\5local\x08gardener\5cloud\0"
    assert messages.name("a\\046b").to_wire() == b"\6a\\046b\0"
    for name in ("", "a..b", "x" * 64, "ü", ".".join(["x" * 63] * 4) + ".x"):
        with pytest.raises(Malformed):
            messages.name(name)


def test_a_name_that_points_at_itself_is_unreadable() -> None:
    with pytest.raises(Unreachable, match="nobody can read"):
        verified(
            b"\0\0\x80\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1",
            query(RecordSet(RecordKey(ZONE, "A"), 0, ())),
            None,
            "the server",
        )


def test_odd_octets_in_names_are_escaped_where_they_are_shown() -> None:
    assert messages.name_text(Name([b"A.b ", b"c", b""])) == "a\\.b\\032.c"
