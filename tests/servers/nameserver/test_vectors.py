"""The contract's test vectors, against a real server."""

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

from tests.servers.nameserver.conftest import KEY, ZONE, Named, NamedFactory, Opener, persist, rrset, settings
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.nameserver import Nameserver, messages, tsig
from windowbox.clients.nameserver.connection import Connection, connected
from windowbox.errors import Malformed, Refused, TransientError
from windowbox.models.recordsets import RecordKey, RecordSet

X = rrset("x", "A", "1.1.1.1", "1.1.1.2")


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


@rule("V2", "DN-5", "N-16")
async def test_saying_the_same_again_changes_nothing(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, X)
    await nameserver.replace(ZONE, X)

    assert named.serial() == 101


@rule("V3", "DN-63")
async def test_another_ttl_is_a_change(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, X)
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1", "1.1.1.2", ttl=90))

    assert named.serial() == 102
    assert named.dig("x", short=False)[0].split()[1] == "90"


@rule("V4", "DN-20", "DN-30", "DN-31")
async def test_an_address_beside_a_cname_fails_by_name(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, rrset("c1", "CNAME", "target.example.com"))

    with pytest.raises(Refused, match=r"a CNAME stands at the name and points to target\.example\.com"):
        await nameserver.replace(ZONE, rrset("c1", "A", "1.1.1.1"))
    assert named.serial() == 101
    assert named.dig("c1", "CNAME") == ["target.example.com."]


@rule("V5", "DN-30", "DN-47")
async def test_a_guard_against_a_cname_is_told_by_the_server(nameserver: Nameserver, raw: Connection) -> None:
    await nameserver.replace(ZONE, rrset("c1", "CNAME", "target.example.com"))
    update = replacing(rrset("c1", "A", "1.1.1.1"))
    update.absent(messages.name(f"c1.{ZONE}"), "CNAME")

    assert await rcode(raw, update) == Rcode.YXRRSET


@rule("V6", "DN-32")
async def test_a_cname_makes_way_for_an_address_in_one_message(named: Named, nameserver: Nameserver) -> None:
    alias = rrset("c1", "CNAME", "target.example.com")
    await nameserver.replace(ZONE, alias)
    await asyncio.gather(
        nameserver.replace(ZONE, rrset("c1", "A", "1.1.1.1")), nameserver.delete(ZONE, alias.key)
    )

    assert named.dig("c1") == ["1.1.1.1"]
    assert nameserver.stats()[0].messages == 2


@rule("V7", "DN-1")
async def test_one_bad_change_undoes_its_whole_message(named: Named, raw: Connection) -> None:
    outside = RecordSet(RecordKey("x.example.com", "A"), 60, ("1.1.1.1",))
    assert await rcode(raw, replacing(X, outside)) == Rcode.NOTZONE
    assert named.dig("x") == []


@rule("V7", "DN-75", "N-14")
async def test_a_name_outside_the_zone_does_not_keep_its_neighbours_out(
    named: Named, nameserver: Nameserver
) -> None:
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
async def test_a_zone_that_the_server_does_not_serve_is_told(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, name=f"foo.{ZONE}"))
    inside = RecordSet(RecordKey(f"x.foo.{ZONE}", "A"), 60, ("1.1.1.1",))

    with pytest.raises(TransientError, match=f"is not authoritative for zone foo.{ZONE}") as raised:
        await nameserver.replace(f"foo.{ZONE}", inside)
    assert raised.value.codes == ("ERR_RETRYABLE_CONFIGURATION_PROBLEM",)
    assert raised.value.retry_after == 30


@rule("V9", "DN-40")
async def test_an_underscore_is_refused_in_addresses_and_welcome_in_texts(
    named: Named, nameserver: Nameserver
) -> None:
    with pytest.raises(TransientError, match=r"_x.* refuses updates") as raised:
        await nameserver.replace(ZONE, rrset("_x", "A", "1.1.1.1"))
    await nameserver.replace(ZONE, rrset("_x", "TXT", "hello"))

    assert raised.value.codes == ("ERR_RETRYABLE_CONFIGURATION_PROBLEM",)
    assert named.dig("_x", "TXT") == ['"hello"']


@rule("V10", "DN-41", "DN-62")
async def test_a_hundred_values_fit_and_one_more_does_not(named: Named, nameserver: Nameserver) -> None:
    values = [f"10.0.{n}.1" for n in range(101)]
    await nameserver.replace(ZONE, rrset("full", "A", *values[:100]))
    with pytest.raises(TransientError, match=r"over\..* cannot store"):
        await nameserver.replace(ZONE, rrset("over", "A", *values))

    assert len(named.dig("full")) == 100
    assert named.dig("over") == []


@rule("V11", "DN-40", "DN-88")
async def test_a_frozen_zone_is_a_reason_to_wait(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, probe_interval=0.2))
    named.rndc("freeze", ZONE)
    with pytest.raises(TransientError, match="thaw the zone"):
        await nameserver.replace(ZONE, X)

    named.rndc("thaw", ZONE)
    await persist(nameserver, X)
    assert named.dig("x") == ["1.1.1.1", "1.1.1.2"]


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
async def test_what_is_wrong_with_a_key_is_told(
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
    assert raised.value.codes == ("ERR_RETRYABLE_CONFIGURATION_PROBLEM",)
    assert key["secret"] not in str(raised.value)


@rule("V13", "DN-48")
async def test_a_deletion_leaves_alone_what_somebody_changed(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, X)
    await nameserver.delete(ZONE, X.key, unless_changed=rrset("x", "A", "1.1.1.1"))

    assert named.dig("x") == ["1.1.1.1", "1.1.1.2"]


@rule("V14", "DN-47", "DN-48")
async def test_a_deletion_takes_what_is_as_it_was(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, X)
    await nameserver.delete(ZONE, X.key, unless_changed=rrset("x", "A", "1.1.1.2", "1.1.1.1"))

    assert named.dig("x") == []


@rule("V15", "DN-29", "DN-55", "DN-56")
async def test_a_specific_name_switches_its_wildcard_off(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, rrset("*.ingress", "A", "1.1.1.1"))
    assert named.dig("x.ingress") == ["1.1.1.1"]
    await nameserver.replace(ZONE, rrset("x.ingress", "AAAA", "2001:db8::1"))

    assert named.dig("x.ingress") == []
    assert named.dig("*.ingress") == ["1.1.1.1"]


@rule("V16", "DN-25", "DN-106")
async def test_a_name_below_a_delegation_is_an_error_that_names_it(
    named: Named, nameserver: Nameserver
) -> None:
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
async def test_what_fits_no_message_is_refused_before_it_is_sent(nameserver: Nameserver) -> None:
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
async def test_a_zone_that_is_not_loaded_is_told_as_such(named: Named, opened: Opener) -> None:
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
