"""The contract's test vectors, drift, and changes that a server ignores silently, on a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace

import dns.message
import dns.query
import pytest
from dns.rcode import Rcode
from dns.update import UpdateMessage

from tests.servers.nameserver.conftest import KEY, ZONE, Named, NamedFactory, Opener, rrset, settings
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.nameserver import Nameserver, messages, tsig, zonequeue
from windowbox.clients.nameserver.connection import Connection, connected
from windowbox.errors import Malformed, Refused, TransientError
from windowbox.models.recordsets import RecordKey, RecordSet

X = rrset("x", "A", "1.1.1.1", "1.1.1.2")
RETRYABLE = ("ERR_RETRYABLE_CONFIGURATION_PROBLEM",)


@pytest.fixture
async def raw(named: Named) -> AsyncIterator[Connection]:
    """A connection for messages that the product would never send."""
    connection = await connected("127.0.0.1", named.port, "named", None, 5)
    yield connection
    connection.close()


async def rcode(raw: Connection, update: UpdateMessage) -> Rcode:
    [reply] = await raw.exchange([update])
    return reply.rcode()


def replacing(*wanted: RecordSet) -> UpdateMessage:
    update = UpdateMessage(messages.name(ZONE))
    for each in map(messages.rrset, wanted):
        update.replace(each.name, each.to_rdataset())
    return update


@rule("V1", "DN-2", "DN-3", "DN-72", "N-11")
async def test_replaced_values_are_all_answered(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, X)
    assert named.serial() == 101
    assert named.dig("x") == ["1.1.1.1", "1.1.1.2"]
    assert named.dig("x", short=False)[0].split()[1] == "60"


@cases(
    "ttl serial",
    ("V2+DN-5+N-16-the-same-changes-nothing", 60, 101),
    ("V3+DN-63-another-ttl-is-a-change", 90, 102),
)
async def test_a_repeated_change(named: Named, nameserver: Nameserver, ttl: int, serial: int) -> None:
    await nameserver.replace(ZONE, X)
    await nameserver.replace(ZONE, rrset("x", "A", *X.values, ttl=ttl))
    assert (named.serial(), named.dig("x", short=False)[0].split()[1]) == (serial, str(ttl))


ALIAS, TEXT = rrset("x", "CNAME", "target.example.com"), rrset("x", "TXT", "hello")
APEX = RecordSet(RecordKey(ZONE, "CNAME"), 60, ("target.example.com",))


@cases(
    "before wanted text",
    ("V4+DN-20+DN-30+DN-31", [ALIAS], X, r"a CNAME stands at the name and points to target\.example\.com"),
    ("DN-21+DN-102", [X, TEXT], ALIAS, "there are A, TXT records at the name"),
    ("DN-22", [], APEX, "there are NS, SOA records at the name"),
)
async def test_a_cname_and_other_records_refuse_each_other(
    named: Named, nameserver: Nameserver, before: list[RecordSet], wanted: RecordSet, text: str
) -> None:
    for record in before:
        await nameserver.replace(ZONE, record)
    serial = named.serial()
    with pytest.raises(Refused, match=text) as raised:
        await nameserver.replace(ZONE, wanted)
    assert raised.value.codes == RETRYABLE
    assert named.serial() == serial


@rule("V5", "DN-30", "DN-47")
async def test_the_server_enforces_a_guard_against_a_cname(nameserver: Nameserver, raw: Connection) -> None:
    await nameserver.replace(ZONE, ALIAS)
    update = replacing(X)
    update.absent(messages.name(f"x.{ZONE}"), "CNAME")
    assert await rcode(raw, update) == Rcode.YXRRSET


@rule("V6", "DN-32")
async def test_a_cname_makes_way_for_an_address_in_one_message(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, ALIAS)
    await asyncio.gather(nameserver.replace(ZONE, X), nameserver.delete(ZONE, ALIAS.key))
    assert named.dig("x") == ["1.1.1.1", "1.1.1.2"]
    assert nameserver.stats()[0].messages == 2


@rule("V7", "DN-1")
async def test_one_bad_change_undoes_its_whole_message(named: Named, raw: Connection) -> None:
    outside = RecordSet(RecordKey("x.example.com", "A"), 60, ("1.1.1.1",))
    assert await rcode(raw, replacing(X, outside)) == Rcode.NOTZONE
    assert named.dig("x") == []


@rule("V7", "DN-75", "N-14")
async def test_a_name_outside_the_zone_spares_its_neighbours(named: Named, nameserver: Nameserver) -> None:
    outside = RecordSet(RecordKey("x.example.com", "A"), 60, ("1.1.1.1",))
    good, bad = await asyncio.gather(
        nameserver.replace(ZONE, X), nameserver.replace(ZONE, outside), return_exceptions=True
    )
    assert good is None
    assert isinstance(bad, Refused)
    assert "x.example.com A: the name is outside zone" in str(bad)
    assert bad.codes == ("ERR_CONFIGURATION_PROBLEM",)
    assert named.dig("x") == ["1.1.1.1", "1.1.1.2"]


@rule("V8")
async def test_a_zone_the_server_does_not_serve_is_reported(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, name=f"foo.{ZONE}"))
    inside = RecordSet(RecordKey(f"x.foo.{ZONE}", "A"), 60, ("1.1.1.1",))
    with pytest.raises(TransientError, match=f"is not authoritative for zone foo.{ZONE}") as raised:
        await nameserver.replace(f"foo.{ZONE}", inside)
    assert raised.value.codes == RETRYABLE
    assert raised.value.retry_after == 30


@rule("V9", "DN-40")
async def test_an_underscore_is_refused_in_addresses_alone(named: Named, nameserver: Nameserver) -> None:
    with pytest.raises(TransientError, match=r"_x.* refuses updates") as raised:
        await nameserver.replace(ZONE, rrset("_x", "A", "1.1.1.1"))
    await nameserver.replace(ZONE, rrset("_x", "TXT", "hello"))
    assert raised.value.codes == RETRYABLE
    assert named.dig("_x", "TXT") == ['"hello"']


@rule("V10", "DN-41", "DN-62")
async def test_a_hundred_values_fit_and_one_more_does_not(named: Named, nameserver: Nameserver) -> None:
    values = [f"10.0.{n}.1" for n in range(101)]
    await nameserver.replace(ZONE, rrset("full", "A", *values[:100]))
    with pytest.raises(TransientError, match=r"over\..* cannot store"):
        await nameserver.replace(ZONE, rrset("over", "A", *values))
    assert len(named.dig("full")) == 100
    assert named.dig("over") == []


OTHER = "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItMTI="


@cases(
    "key hours text",
    ("V12-BADSIG+DN-45", {"name": "good", "secret": OTHER}, 0, "secret of key good"),
    ("V12-BADKEY+DN-80", {"name": "none", "secret": KEY}, 0, "key none .* not known"),
    (
        "V12-BADKEY-other-algorithm+DN-76",
        {"name": "good", "algorithm": "hmac-sha512", "secret": KEY},
        0,
        "hmac-sha512",
    ),
    ("V12-BADTIME+DN-78", {"name": "good", "secret": KEY}, 1, "differs .* by 3(599|600|601) s"),
)
async def test_a_wrong_key_is_explained(
    start_named: NamedFactory,
    opened: Opener,
    monkeypatch: pytest.MonkeyPatch,
    key: dict[str, str],
    hours: int,
    text: str,
) -> None:
    named = start_named(options='allow-update { key "good"; };')
    clock = SimpleNamespace(time=lambda: time.time() + hours * 3600)
    for module in (dns.message, tsig):
        monkeypatch.setattr(module, "time", clock)
    with pytest.raises(TransientError, match=text) as raised:
        await opened(settings(named.server, key=key)).replace(ZONE, X)
    assert raised.value.codes == RETRYABLE
    assert key["secret"] not in str(raised.value)


@cases(
    "known answer left",
    ("V13+DN-48-other-values-stay", ["1.1.1.1"], Rcode.NXRRSET, ["1.1.1.1", "1.1.1.2"]),
    ("V14+DN-47+DN-48-known-values-go", ["1.1.1.2", "1.1.1.1"], Rcode.NOERROR, []),
)
async def test_the_server_deletes_only_the_values_of_the_guard(
    named: Named, raw: Connection, known: list[str], answer: Rcode, left: list[str]
) -> None:
    assert await rcode(raw, replacing(X)) == Rcode.NOERROR
    update, name = UpdateMessage(messages.name(ZONE)), messages.name(X.key.name)
    update.present(name, *messages.rrset(rrset("x", "A", *known)))
    update.delete(name, "A")
    assert (await rcode(raw, update), named.dig("x")) == (answer, left)


@rule("V15", "DN-29", "DN-55", "DN-56")
async def test_a_specific_name_switches_its_wildcard_off(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, rrset("*.ingress", "A", "1.1.1.1"))
    assert named.dig("x.ingress") == ["1.1.1.1"]
    await nameserver.replace(ZONE, rrset("x.ingress", "AAAA", "2001:db8::1"))
    assert named.dig("x.ingress") == []
    assert named.dig("*.ingress") == ["1.1.1.1"]


@rule("V16", "DN-25", "DN-106")
async def test_an_error_names_the_delegation_above_a_name(named: Named, nameserver: Nameserver) -> None:
    named.nsupdate(f"update add deleg.{ZONE} 60 NS docker-dns.{ZONE}")
    with pytest.raises(Refused, match=rf"deleg\.{ZONE} is delegated .* configure the zone"):
        await nameserver.replace(ZONE, rrset("h.deleg", "A", "1.1.1.1"))


@rule("V17", "DN-28")
async def test_a_ttl_beyond_the_limit_counts_as_0(named: Named, raw: Connection) -> None:
    """BIND hands it out as it came; whoever follows RFC 2181 §8, as dnspython does, reads 0."""
    update = replacing(rrset("x", "A", "1.1.1.1"))
    update.update[-1].ttl = 2**31
    assert await rcode(raw, update) == Rcode.NOERROR
    answer = dns.query.tcp(dns.message.make_query(f"x.{ZONE}", "A"), "127.0.0.1", 5, named.port)
    assert answer.answer[0].ttl == 0


@rule("V18", "DN-65")
async def test_a_record_too_large_for_a_message_is_refused(nameserver: Nameserver) -> None:
    texts = tuple(f"{n:03}" + "x" * 4000 for n in range(17))
    with pytest.raises(Malformed, match="more than one DNS message holds"):
        await nameserver.replace(ZONE, rrset("x", "TXT", *texts))
    assert nameserver.stats() == []


@rule("V19", "DN-64", "DN-83")
async def test_a_burst_of_300_messages_loses_none_as_it_would_over_udp(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, max_rrsets=1))
    burst = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(300)]
    await asyncio.gather(*(nameserver.replace(ZONE, wanted) for wanted in burst))
    assert nameserver.stats()[0].messages == 300
    assert named.serial() == 400


@rule("V20", "DN-41", "DN-87")
async def test_a_zone_that_is_not_loaded_is_reported(named: Named, opened: Opener) -> None:
    pristine = (named.directory / f"{ZONE}.zone").read_text()
    nameserver = opened(settings(named.server, max_rrsets=1))
    for n in range(50):
        await nameserver.replace(ZONE, rrset(f"x{n}", "A", "1.1.1.1"))
    named.rndc("sync", ZONE)
    named.until_written("150")
    named.stop()
    (named.directory / f"{ZONE}.zone").write_text(pristine)
    named.start()
    with pytest.raises(TransientError, match=r"has not loaded zone .* journal"):
        await opened(settings(named.server)).replace(ZONE, X)


@rule("DN-23", "DN-54")
async def test_a_new_target_replaces_the_old_one(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, rrset("x", "CNAME", "_old.example.com"))
    await nameserver.replace(ZONE, rrset("x", "CNAME", "_new.example.com"))
    assert named.dig("x", "CNAME") == ["_new.example.com."]


@rule("DN-26", "DN-90")
async def test_a_child_zone_of_the_same_server_is_named(start_named: NamedFactory, opened: Opener) -> None:
    named = start_named({ZONE: "allow-update { any; };", f"child.{ZONE}": "allow-update { any; };"})
    with pytest.raises(Refused, match=rf"serves the zone child\.{ZONE}, which hides") as raised:
        await opened(settings(named.server)).replace(ZONE, rrset("x.child", "A", "1.1.1.1"))
    assert raised.value.codes == RETRYABLE


@rule("DN-27")
async def test_a_ttl_lowered_by_the_server_is_reported(start_named: NamedFactory, opened: Opener) -> None:
    named = start_named(options="allow-update { any; }; max-zone-ttl 50;")
    with pytest.raises(Refused, match=r"keeps TTL 50 instead of 60 .* set spec.ttl to 50"):
        await opened(settings(named.server)).replace(ZONE, rrset("x", "A", "1.1.1.1"))


@rule("DN-107")
@pytest.mark.parametrize("deleting", [False, True], ids=["replace", "delete"])
async def test_a_name_servers_own_address_stays(named: Named, nameserver: Nameserver, deleting: bool) -> None:
    wanted = rrset("ns", "A", "1.1.1.1")
    with pytest.raises(Refused, match="is a name server of"):
        await (nameserver.delete(ZONE, wanted.key) if deleting else nameserver.replace(ZONE, wanted))
    assert named.dig("ns") == ["172.18.255.53"]


@rule("DN-6", "N-14")
async def test_deleting_a_missing_record_succeeds_at_once(named: Named, nameserver: Nameserver) -> None:
    await nameserver.delete(ZONE, RecordKey(f"never.{ZONE}", "A"))
    assert named.serial() == 100


@rule("DN-55", "DN-56")
async def test_a_deletion_below_a_wildcard_is_proved(named: Named, nameserver: Nameserver) -> None:
    wildcard, inside = rrset("*.ingress", "A", "1.1.1.1"), rrset("x.ingress", "A", "2.2.2.2")
    await nameserver.replace(ZONE, wildcard)
    await nameserver.replace(ZONE, inside)
    await nameserver.delete(ZONE, inside.key)
    assert named.dig("x.ingress") == ["1.1.1.1"]
    assert await nameserver.read(ZONE, wildcard.key) == wildcard


@rule("DN-51")
async def test_a_name_stored_in_other_letters_is_the_same_name(named: Named, nameserver: Nameserver) -> None:
    named.nsupdate(f"update add UPPER.{ZONE} 60 CNAME Target.Example.COM.")
    wanted = rrset("upper", "CNAME", "target.example.com")
    assert await nameserver.read(ZONE, wanted.key) == wanted
    await nameserver.delete(ZONE, wanted.key)
    assert named.dig("upper", "CNAME") == []


async def test_long_and_strange_texts_survive_the_wire(named: Named, nameserver: Nameserver) -> None:
    text = rrset("t", "TXT", 'say "grüß" \\ \n' + "x" * 600, "zz")
    await nameserver.replace(ZONE, text)
    assert await nameserver.read(ZONE, text.key) == text
    assert len(named.dig("t", "TXT")) == 2


@rule("DN-71")
async def test_all_types_of_one_name_live_side_by_side(named: Named, nameserver: Nameserver) -> None:
    await asyncio.gather(
        nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1")),
        nameserver.replace(ZONE, rrset("x", "AAAA", "2001:db8::1")),
        nameserver.replace(ZONE, rrset("x", "TXT", "hello")),
    )
    found = [named.dig("x", of) for of in ("A", "AAAA", "TXT")]
    assert found == [["1.1.1.1"], ["2001:db8::1"], ['"hello"']]


@rule("DN-5", "DN-31", "DN-110")
async def test_only_what_differs_has_drifted(named: Named, nameserver: Nameserver) -> None:
    records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(250)]
    await asyncio.gather(*(nameserver.replace(ZONE, record) for record in records))
    assert await nameserver.drifted(ZONE, records) == []
    named.nsupdate(
        f"update delete x7.{ZONE} A",
        f"update add x8.{ZONE} 60 A 2.2.2.2",
        f"update delete x9.{ZONE} A",
        f"update add x9.{ZONE} 61 A 1.1.1.1",
    )
    assert await nameserver.drifted(ZONE, records) == [records[7].key, records[8].key, records[9].key]


@rule("DN-66", "DN-87")
async def test_a_restored_zone_is_announced_and_found_empty(named: Named, nameserver: Nameserver) -> None:
    pristine = (named.directory / f"{ZONE}.zone").read_text()
    record = rrset("x", "A", "1.1.1.1")
    await nameserver.replace(ZONE, record)
    announced = asyncio.ensure_future(anext(nameserver.reconnected()))
    named.stop()
    (named.directory / f"{ZONE}.zone").write_text(pristine)
    (named.directory / f"{ZONE}.zone.jnl").unlink()
    await asyncio.to_thread(named.start)
    assert await announced == ZONE
    assert await nameserver.drifted(ZONE, [record]) == [record.key]
    await nameserver.replace(ZONE, record)
    assert await nameserver.drifted(ZONE, [record]) == []


@rule("DN-88", "DN-89")
async def test_a_serial_that_went_back_is_announced(
    named: Named, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zonequeue, "PROBE_INTERVAL", 0.1)
    nameserver = opened(settings(named.server, probe_interval=0.1))
    record = rrset("x", "A", "1.1.1.1")
    await nameserver.replace(ZONE, record)
    announced = asyncio.ensure_future(anext(nameserver.reconnected()))
    file = named.directory / f"{ZONE}.zone"
    named.rndc("freeze", ZONE)
    named.until_written("101")
    file.write_text(file.read_text().replace("101", "50", 1).replace("1.1.1.1", "9.9.9.9"))
    (named.directory / f"{ZONE}.zone.jnl").unlink(missing_ok=True)
    named.rndc("thaw", ZONE)

    async with asyncio.timeout(60):
        assert await announced == ZONE
    assert named.serial() == 50
    assert await nameserver.drifted(ZONE, [record]) == [record.key]
