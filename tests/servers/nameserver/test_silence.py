"""What a server ignores without a word becomes an error with its cause and a remedy."""

from __future__ import annotations

import asyncio

import pytest

from tests.servers.nameserver.conftest import ZONE, Named, NamedFactory, Opener, rrset, settings
from tests.support.rules import rule
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import Refused
from windowbox.models.recordsets import RecordKey, RecordSet

RETRYABLE = ("ERR_RETRYABLE_CONFIGURATION_PROBLEM",)


@rule("DN-21", "DN-102")
async def test_a_cname_beside_other_records_names_their_types(named: Named, nameserver: Nameserver) -> None:
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    await nameserver.replace(ZONE, rrset("x", "TXT", "hello"))

    with pytest.raises(Refused, match="there are A, TXT records at the name") as raised:
        await nameserver.replace(ZONE, rrset("x", "CNAME", "target.example.com"))
    assert raised.value.codes == RETRYABLE
    assert named.dig("x") == ["1.1.1.1"]


@rule("DN-22")
async def test_a_cname_at_the_apex_never_succeeds(nameserver: Nameserver) -> None:
    apex = RecordSet(RecordKey(ZONE, "CNAME"), 60, ("target.example.com",))
    with pytest.raises(Refused, match="there are NS, SOA records at the name"):
        await nameserver.replace(ZONE, apex)


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
async def test_a_ttl_that_the_server_lowers_is_told(start_named: NamedFactory, opened: Opener) -> None:
    named = start_named(options="allow-update { any; }; max-zone-ttl 50;")
    with pytest.raises(Refused, match=r"keeps TTL 50 instead of 60 .* set spec.ttl to 50"):
        await opened(settings(named.server)).replace(ZONE, rrset("x", "A", "1.1.1.1"))


@rule("DN-107")
@pytest.mark.parametrize("deleting", [False, True], ids=["replace", "delete"])
async def test_the_name_servers_own_address_stays(
    named: Named, nameserver: Nameserver, deleting: bool
) -> None:
    wanted = rrset("ns", "A", "1.1.1.1")
    with pytest.raises(Refused, match="is a name server of"):
        await (nameserver.delete(ZONE, wanted.key) if deleting else nameserver.replace(ZONE, wanted))
    assert named.dig("ns") == ["172.18.255.53"]


@rule("DN-6", "N-14")
async def test_deleting_what_is_not_there_is_done_at_once(named: Named, nameserver: Nameserver) -> None:
    await nameserver.delete(ZONE, RecordKey(f"never.{ZONE}", "A"))
    assert named.serial() == 100


@rule("DN-55", "DN-56")
async def test_a_deletion_below_a_wildcard_is_proved_all_the_same(
    named: Named, nameserver: Nameserver
) -> None:
    await nameserver.replace(ZONE, rrset("*.ingress", "A", "1.1.1.1"))
    await nameserver.replace(ZONE, rrset("x.ingress", "A", "2.2.2.2"))
    await nameserver.delete(ZONE, RecordKey(f"x.ingress.{ZONE}", "A"))

    assert named.dig("x.ingress") == ["1.1.1.1"]
    assert await nameserver.read(ZONE, RecordKey(f"*.ingress.{ZONE}", "A")) == rrset(
        "*.ingress", "A", "1.1.1.1"
    )


@rule("DN-51")
async def test_a_name_stored_in_other_letters_is_the_same_name(named: Named, nameserver: Nameserver) -> None:
    named.nsupdate(f"update add UPPER.{ZONE} 60 CNAME Target.Example.COM.")
    assert await nameserver.read(ZONE, RecordKey(f"upper.{ZONE}", "CNAME")) == rrset(
        "upper", "CNAME", "target.example.com"
    )
    await nameserver.delete(ZONE, RecordKey(f"upper.{ZONE}", "CNAME"))
    assert named.dig("upper", "CNAME") == []


async def test_long_and_strange_texts_come_back_as_they_went(named: Named, nameserver: Nameserver) -> None:
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
    assert (named.dig("x"), named.dig("x", "AAAA"), named.dig("x", "TXT")) == (
        ["1.1.1.1"],
        ["2001:db8::1"],
        ['"hello"'],
    )
