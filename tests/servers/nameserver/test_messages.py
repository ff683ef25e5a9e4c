"""Messages: names and values whatever octets they hold, and keys, which no text shows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import string
import time
from types import SimpleNamespace
from typing import get_args

import dns.exception
import dns.flags
import dns.message
import dns.tsig
import pytest
from dns.message import Message
from dns.name import Name
from dns.rcode import Rcode
from dns.rdatatype import RdataType
from dns.update import UpdateMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.servers.nameserver.conftest import KEY, ZONE, NamedFactory, Opener, rrset, settings
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.nameserver import TsigKey, messages, tsig
from windowbox.clients.nameserver.classify import ZoneFailed, update_failure
from windowbox.clients.nameserver.plainqueries import PlainQuery
from windowbox.clients.nameserver.tsig import accepted, parsed, signed, verified
from windowbox.clients.nameserver.updates import Update
from windowbox.errors import Malformed, PermanentError, TransientError, Unreachable, WindowboxError
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType
from windowbox.settings.dnssettings import Algorithm

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


@given(record_sets())
def test_values_survive_the_wire(wanted: RecordSet) -> None:
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


@given(record_sets(), st.data())
def test_a_spoilt_reply_is_read_or_unreadable(wanted: RecordSet, data: st.DataObject) -> None:
    wire = bytearray(reply_of(wanted))
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    spoilt = bytes(wire[: data.draw(st.integers(0, len(wire)))])
    with contextlib.suppress(Unreachable):
        messages.record_set(wanted.key, verified(spoilt, query(wanted), None, "the server"))


@given(record_sets())
def test_a_plain_query_is_what_dnspython_would_write(wanted: RecordSet) -> None:
    asked = query(wanted)
    asked.id = 0
    assert PlainQuery(wanted).octets == asked.to_wire()


@given(record_sets(), st.permutations(range(5)))
def test_an_answer_in_any_order_is_a_proof(wanted: RecordSet, order: list[int]) -> None:
    values = [wanted.values[place] for place in order if place < len(wanted.values)]
    reply = reply_of(RecordSet(wanted.key, wanted.ttl, tuple(values)))
    # The target of a CNAME may be compressed: this is left to dnspython.
    assert PlainQuery(wanted).proved_by(reply) or wanted.key.type == "CNAME"


@given(record_sets(), st.data())
def test_a_spoilt_reply_proves_only_what_it_says(wanted: RecordSet, data: st.DataObject) -> None:
    wire = bytearray(reply_of(wanted))
    # Not the counts of the sections after the answers: these are not read.
    places = [*range(2, 8), *range(12, len(wire))]
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.sampled_from(places))] = data.draw(st.integers(0, 255))
    spoilt = bytes(wire[: data.draw(st.integers(0, len(wire)) | st.just(len(wire)))])
    if PlainQuery(wanted).proved_by(spoilt):
        found = messages.record_set(wanted.key, verified(spoilt, query(wanted), None, "the server"))
        assert found is not None
        assert (found.ttl, set(found.values)) == (wanted.ttl, set(wanted.values))


PAIR = rrset("x", "A", "1.1.1.1", "1.1.1.2")


def with_flags(flags: int, *, rcode: Rcode = Rcode.NOERROR) -> bytes:
    reply = dns.message.from_wire(reply_of(PAIR))
    reply.flags ^= flags
    reply.set_rcode(rcode)
    return reply.to_wire()


@cases(
    "reply",
    ("DN-63-another-ttl", reply_of(rrset("x", "A", *PAIR.values, ttl=61))),
    ("one-value", reply_of(rrset("x", "A", "1.1.1.1"))),
    ("another-value", reply_of(rrset("x", "A", "1.1.1.1", "1.1.1.3"))),
    ("one-value-more", reply_of(rrset("x", "A", *PAIR.values, "1.1.1.3"))),
    ("one-value-twice", reply_of(PAIR).replace(b"\1\1\1\2", b"\1\1\1\1")),
    ("another-name", reply_of(rrset("y", "A", *PAIR.values))),
    ("another-type", reply_of(rrset("x", "AAAA", "2001:db8::1", "2001:db8::2"))),
    ("a-copy", with_flags(dns.flags.AA)),
    ("truncated", with_flags(dns.flags.TC)),
    ("a-query", with_flags(dns.flags.QR)),
    ("an-error", with_flags(0, rcode=Rcode.SERVFAIL)),
    ("cut-off", reply_of(PAIR)[:-1]),
    ("no-answer", reply_of(PAIR)[:-32]),
    ("nothing-but-a-header", bytes(12)),
)
def test_no_other_reply_is_a_proof(reply: bytes) -> None:
    assert PlainQuery(PAIR).proved_by(reply_of(PAIR))
    assert not PlainQuery(PAIR).proved_by(reply)


@given(st.lists(record_sets(), max_size=4), st.lists(record_sets(), max_size=4))
def test_an_update_says_what_one_of_dnspython_says(known: list[RecordSet], wanted: list[RecordSet]) -> None:
    ours, theirs = Update(ZONE), UpdateMessage(messages.name(ZONE))
    for each in known:
        ours.present(each.key.name, RdataType[each.key.type], messages.values(each))
        theirs.present(messages.name(each.key.name), *messages.rrset(each))
        ours.absent("other.example.com", RdataType.A)
        theirs.absent(messages.name("other.example.com"), RdataType.A)
    for each in wanted:
        ours.replace(each)
        theirs.replace(messages.name(each.key.name), messages.rrset(each).to_rdataset())
        ours.delete(each.key.name, RdataType.TXT)
        theirs.delete(messages.name(each.key.name), RdataType.TXT)
    theirs.id = 0
    read, expected = (sections(wire) for wire in (ours.octets(), theirs.to_wire()))
    assert read == expected


def sections(wire: bytes) -> list[list[str]]:
    read = dns.message.from_wire(wire, one_rr_per_rrset=True)
    assert isinstance(read, UpdateMessage)
    return [[str(read.flags)], *(list(map(str, section)) for section in read.sections)]


@rule("DN-65")
def test_the_octets_of_an_update_are_not_underestimated() -> None:
    wanted = [rrset(f"{n}.{'x' * 60}", "A", "192.0.2.1", "192.0.2.2") for n in range(400)]
    update = Update(ZONE)
    empty = len(update.octets())
    for each in wanted:
        update.replace(each)
    wire = update.octets()
    assert 0x4000 < len(wire) <= empty + sum(map(messages.octets, wanted))
    read = dns.message.from_wire(wire)
    assert isinstance(read, UpdateMessage)
    assert [one.name for one in read.update[::3]] == [messages.name(each.key.name) for each in wanted]


@rule("DN-8", "DN-53")
def test_names_are_never_relative_nor_escaped() -> None:
    assert messages.name(f"a.{ZONE}").to_wire() == b"\1a\5local\x08gardener\5cloud\0"
    assert messages.name("a\\046b").to_wire() == b"\6a\\046b\0"
    for name in ("", "a..b", "x" * 64, "ü", ".".join(["x" * 63] * 4) + ".x"):
        with pytest.raises(Malformed):
            messages.name(name)


def test_odd_octets_in_names_are_escaped_where_they_are_shown() -> None:
    assert messages.name_text(Name([b"A.b ", b"c", b""])) == "a\\.b\\032.c"


X = rrset("x", "A", "1.1.1.1")


@cases("name algorithm", ("DN-76-sha256", "good", "hmac-sha256"), ("DN-76-sha512", "good512", "hmac-sha512"))
async def test_keys_open_a_zone(start_named: NamedFactory, opened: Opener, name: str, algorithm: str) -> None:
    named = start_named(options=f'allow-update {{ key "{name}"; }};')
    nameserver = opened(settings(named.server, key={"name": name, "algorithm": algorithm, "secret": KEY}))
    await asyncio.gather(*(nameserver.replace(ZONE, rrset(f"x{n}", "A", "1.1.1.1")) for n in range(300)))
    await nameserver.delete(ZONE, rrset("x0", "A").key)
    assert (named.dig("x0"), named.dig("x299")) == ([], ["1.1.1.1"])


@rule("DN-82", "DN-84")
async def test_each_record_can_bring_its_own_key(start_named: NamedFactory, opened: Opener) -> None:
    named = start_named(
        options=f"update-policy {{ grant good name x.{ZONE} A; grant good512 zonesub ANY; }};"
    )
    nameserver = opened(settings(named.server, key_from_record=True))
    data = {"TSIGKeyName": b"good.", "TSIGSecret": KEY.encode() + b"\n"}
    longer = {"TSIGKeyName": b"good512.", "TSIGSecretAlgorithm": b"hmac-sha512"}
    good, other = TsigKey.from_secret_data(data), TsigKey.from_secret_data(data | longer)
    await nameserver.replace(ZONE, X, key=good)
    with pytest.raises(TransientError, match="refuses updates"):
        await nameserver.replace(ZONE, rrset("y", "A", "1.1.1.1"), key=good)
    await nameserver.replace(ZONE, rrset("y", "A", "1.1.1.1"), key=other)

    assert (named.dig("x"), named.dig("y")) == (["1.1.1.1"], ["1.1.1.1"])
    assert len(nameserver.stats()) == 2


@rule("DN-80")
async def test_a_closed_zone_is_read_with_its_key(start_named: NamedFactory, opened: Opener) -> None:
    named = start_named(options='allow-update { key "good"; }; allow-query { key "good"; };')
    nameserver = opened(settings(named.server, key={"name": "good", "secret": KEY}))
    await nameserver.replace(ZONE, X)
    assert await nameserver.read(ZONE, X.key) == X
    assert await nameserver.drifted(ZONE, [X]) == []


@cases(
    "data text",
    ("DN-82-empty", {}, "no TSIGKeyName"),
    ("DN-82-no-secret", {"TSIGKeyName": b"k"}, "no TSIGSecret"),
    ("DN-77-name", {"TSIGKeyName": b"k..x", "TSIGSecret": b"aGVsbG8="}, "not a DNS name"),
    ("DN-77-text", {"TSIGKeyName": b"hunter2 = x", "TSIGSecret": b"aGk="}, "not a DNS name"),
    ("DN-77-base64", {"TSIGKeyName": b"k", "TSIGSecret": b"hunter2!"}, "not base64"),
    (
        "DN-76-algorithm",
        {"TSIGKeyName": b"k", "TSIGSecret": b"aGVsbG8=", "TSIGSecretAlgorithm": b"hunter2"},
        "TSIGSecretAlgorithm in the Secret is unknown: use hmac-sha1",
    ),
)
def test_a_wrong_secret_is_explained_without_showing_it(data: dict[str, bytes], text: str) -> None:
    with pytest.raises(Malformed, match=text) as raised:
        TsigKey.from_secret_data(data)
    assert "hunter2" not in str(raised.value)


def test_a_key_does_not_show_its_secret() -> None:
    key = TsigKey.from_secret_data(
        {"TSIGKeyName": b"Key.Example.", "TSIGSecret": base64.b64encode(b"hunter2")}
    )
    assert (key.name, key.algorithm, key.secret) == ("key.example", "hmac-sha256", b"hunter2")
    assert "hunter2" not in repr(key)


@cases(
    "zone text",
    ("no-server", {"servers": []}, "at least 1 item"),
    ("DN-74-port", {"servers": ["host:port"]}, "is not a server: write host"),
    ("DN-74-port-range", {"servers": ["[::1]:99999"]}, "is not a server: write host"),
    ("zone", {"name": "a b"}, "is not a zone: write its apex"),
    ("DN-77-secret", {"key": {"name": "k", "secret": "hunter2!"}}, "is not base64"),
    ("DN-76", {"key": {"name": "k", "secret": KEY, "algorithm": "hmac-md5"}}, "hmac-sha256"),
    ("two-keys", {"key": {"name": "k", "secret": KEY}, "key_from_record": True}, "not both"),
    ("unknown-field", {"colour": "red"}, "Extra inputs"),
)
def test_wrong_settings_are_refused(zone: dict[str, object], text: str) -> None:
    servers = zone.pop("servers", ["127.0.0.1"])
    assert isinstance(servers, list)
    with pytest.raises(ValidationError, match=text) as raised:
        settings(*servers, **zone)
    assert "hunter2" not in str(raised.value)


def subclasses(base: type[Exception]) -> list[type[Exception]]:
    return [base, *(deeper for direct in base.__subclasses__() for deeper in subclasses(direct))]


def instance(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)  # some of them cannot be made without the objects they are about
    Exception.__init__(error, "said the library")
    vars(error).update(kwargs={}, msg="said the library")
    return error


GOOD = TsigKey("good", "hmac-sha256", b"secret")


def question(key: TsigKey = GOOD) -> Message:
    """A query that has been signed."""
    query = messages.query(messages.name(ZONE), RdataType.SOA)
    query.use_tsig(key.ring)
    query.to_wire()
    return query


def unsigned_reply(query: Message) -> Message:
    reply = dns.message.make_response(query)
    reply.tsig = None
    return reply


def signed_reply(query: Message, key: TsigKey) -> bytes:
    reply = unsigned_reply(query)
    reply.use_tsig(key.ring)
    return reply.to_wire()


def read_all(wires: list[bytes], query: Message) -> None:
    """Verify the messages of a transfer."""
    context = None
    for wire in wires:
        context = verified(wire, query, GOOD, "the server", context).tsig_ctx


@pytest.mark.parametrize("kind", subclasses(dns.exception.DNSException), ids=lambda kind: kind.__qualname__)
def test_errors_of_dnspython_are_translated(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacing what dnspython does is the one way to see each of its errors come through our door."""
    query = question()
    reply = signed_reply(query, GOOD)
    error = instance(kind)
    monkeypatch.setattr(dns.tsig, "validate", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises((ZoneFailed, WindowboxError), match=r"the server|TSIG") as raised:
        verified(reply, query, GOOD, "the server")
    assert raised.value.__cause__ is error


@rule("DN-79")
@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_a_signed_answer_is_believed_in_every_algorithm(algorithm: Algorithm) -> None:
    key = TsigKey("good", algorithm, b"secret")
    query = question(key)
    assert verified(signed_reply(query, key), query, key, "the server").had_tsig


@rule("DN-45")
@pytest.mark.parametrize("rcode", ["NOERROR", "NXDOMAIN", "YXRRSET", "NXRRSET"])
def test_an_unsigned_answer_is_not_believed(rcode: str) -> None:
    query = question()
    reply = unsigned_reply(query)
    reply.set_rcode(Rcode[rcode])
    with pytest.raises(ZoneFailed, match="is not signed with TSIG key good"):
        verified(reply.to_wire(), query, GOOD, "the server")


@rule("DN-45")
@cases(
    "asked secret",
    ("another-secret", question(), b"other"),
    ("another-question", question(TsigKey("good", "hmac-sha256", b"another")), b"secret"),
)
def test_a_signature_that_is_not_right_is_not_believed(asked: Message, secret: bytes) -> None:
    reply = signed_reply(asked, TsigKey("good", "hmac-sha256", secret))
    with pytest.raises(ZoneFailed, match="is not signed with TSIG key good"):
        verified(reply, question(), GOOD, "the server")


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_a_message_is_signed_as_dnspython_would(algorithm: Algorithm) -> None:
    key = TsigKey("Good.Example", algorithm, b"secret")
    message, mac = signed(Update(ZONE).octets(), key)
    read = dns.message.from_wire(message, keyring=key.ring)
    assert (read.had_tsig, read.mac) == (True, mac)


def done(key: TsigKey, *, signer: TsigKey | None = None, **fields: int) -> tuple[bytes, bytes, bytes]:
    """The reply to an update that a server has done, the update, and its MAC."""
    message, mac = signed(b"\2\1" + Update(ZONE).octets()[2:], key)
    reply = dns.message.make_response(parsed(message, key))
    reply.question = parsed(message, key).question
    reply.tsig = None
    reply.use_tsig((signer or key).ring, fudge=fields.get("fudge", 300))
    reply.id = fields.get("id", reply.id)
    reply.set_rcode(Rcode(fields.get("rcode", 0)))
    return reply.to_wire(), message, mac


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_a_signed_noerror_is_accepted_at_once(algorithm: Algorithm) -> None:
    key = TsigKey("good.example", algorithm, b"secret")
    reply, message, mac = done(key)
    assert accepted(reply, message, mac, key)
    assert verified(reply, parsed(message, key), key, "the server").rcode() == Rcode.NOERROR


@rule("DN-45", "DN-78", "DN-79")
@cases(
    "reply",
    ("another-secret", done(GOOD, signer=TsigKey("good", "hmac-sha256", b"other"))),
    ("another-key", done(GOOD, signer=TsigKey("bad", "hmac-sha256", b"secret"))),
    ("another-algorithm", done(GOOD, signer=TsigKey("good", "hmac-sha512", b"secret"))),
    ("another-request", (done(GOOD)[0], done(GOOD)[1], b"another MAC of this length......")),
    ("another-id", done(GOOD, id=7)),
    ("a-refusal", done(GOOD, rcode=Rcode.YXRRSET)),
    ("unsigned", (done(GOOD)[0][:-77], *done(GOOD)[1:])),
    ("cut-off", (done(GOOD)[0][:-1], *done(GOOD)[1:])),
    ("something-behind", (done(GOOD)[0] + b"\0", *done(GOOD)[1:])),
    ("nothing-but-a-header", (bytes(12), *done(GOOD)[1:])),
)
def test_no_other_reply_is_accepted_at_once(reply: tuple[bytes, bytes, bytes]) -> None:
    answer, message, mac = reply
    assert accepted(*done(GOOD), GOOD)
    assert not accepted(answer, message, mac, GOOD)


def test_an_old_noerror_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the one who reads is the only one that can be set without a server."""
    reply, message, mac = done(GOOD, fudge=20)
    for away, believed in ((19, True), (22, False), (-22, False)):
        moment = time.time() + away
        monkeypatch.setattr(tsig, "time", SimpleNamespace(time=lambda moment=moment: moment))
        assert accepted(reply, message, mac, GOOD) == believed


@given(st.data())
def test_a_spoilt_noerror_is_not_accepted(data: st.DataObject) -> None:
    reply, message, mac = done(GOOD)
    place = data.draw(st.integers(0, len(reply) - 1))
    spoilt = bytearray(reply)
    spoilt[place] ^= data.draw(st.integers(1, 255))
    assert not accepted(bytes(spoilt), message, mac, GOOD)
    assert not accepted(reply[:place], message, mac, GOOD)


def transfer(*seals: bool) -> tuple[Message, list[bytes]]:
    """A query, and its answer in several messages of which some are signed."""
    query = question()
    wires: list[bytes] = []
    context = None
    for sign in seals:
        reply = unsigned_reply(query)
        if sign:
            reply.use_tsig(GOOD.ring)
            wires.append(reply.to_wire(multi=True, tsig_ctx=context))
            context = reply.tsig_ctx
        else:
            wires.append(reply.to_wire())
            assert context is not None
            context.update(wires[-1])
    return query, wires


def test_a_signature_covers_the_unsigned_messages_of_a_transfer_before_it() -> None:
    query, wires = transfer(True, False, False, True, True)
    read_all(wires, query)


@pytest.mark.parametrize("place", [0, 1], ids=["signed", "unsigned"])
def test_a_changed_message_of_a_transfer_is_not_believed(place: int) -> None:
    query, wires = transfer(True, False, True)
    wires[place] = wires[place][:2] + bytes((wires[place][2] ^ 1,)) + wires[place][3:]
    with pytest.raises(ZoneFailed, match="is not signed with TSIG key good"):
        read_all(wires, query)


@pytest.mark.parametrize(
    "rcode", [pytest.param(Rcode(r), id=f"DN-40+DN-44-{Rcode(r).name}") for r in range(1, 11)]
)
def test_every_refusal_names_the_server_and_a_remedy(rcode: Rcode) -> None:
    error = update_failure(rcode, "ns.example:53", ZONE).error()
    assert ZONE in str(error)
    never = rcode in (Rcode.FORMERR, Rcode.NOTZONE)
    assert isinstance(error, PermanentError) == never
    if never:
        assert error.codes == ("ERR_CONFIGURATION_PROBLEM",)
    elif isinstance(error, TransientError) and error.retry_after == 30:
        assert error.codes == ("ERR_RETRYABLE_CONFIGURATION_PROBLEM",)
    else:
        assert error.codes == ()


@cases(
    "reply",
    ("no-message", b"\0\0\0\0\0\0\0\1\0\1\0\1"),
    ("a-name-that-points-at-itself", b"\0\0\x80\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1"),
)
def test_unreadable_replies_are_an_outage(reply: bytes) -> None:
    with pytest.raises(Unreachable, match="unreadable reply"):
        verified(reply, question(), GOOD, "the server")
