"""Owners' marks: they keep records of others safe, and a zone transfer lists them."""

from __future__ import annotations

import asyncio

import pytest
from dns.rcode import Rcode

from tests.servers.nameserver.conftest import KEY, ZONE, Named, NamedFactory, Opener, rrset, settings
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.nameserver import Mark, Nameserver, messages, ownership
from windowbox.clients.nameserver.changes import Delete, Replace
from windowbox.clients.nameserver.connection import connected
from windowbox.clients.nameserver.ownership import Held, Unclaimed
from windowbox.clients.nameserver.updates import Update
from windowbox.errors import Refused, TransientError
from windowbox.models.recordsets import RecordKey

OURS, OTHER = rrset("x", "A", "1.1.1.1"), rrset("x", "A", "2.2.2.2")
MARK = "_windowbox-a.x"
HELD = Held(messages.rrset(ownership.mark(OURS.key, ZONE, "me")))


@pytest.fixture
def me(named: Named, opened: Opener) -> Nameserver:
    return opened(settings(named.server, ownership="me"))


@pytest.fixture
def you(named: Named, opened: Opener) -> Nameserver:
    return opened(settings(named.server, ownership="you"))


@rule("DN-49")
async def test_a_claim_comes_and_goes_with_its_record(named: Named, me: Nameserver) -> None:
    await me.replace(ZONE, OURS)
    assert named.dig(MARK, "TXT") == ['"heritage=windowbox,owner=me"']
    await me.replace(ZONE, OTHER)
    assert named.dig("x") == ["2.2.2.2"]
    await me.delete(ZONE, OURS.key)
    assert (named.dig("x"), named.dig(MARK, "TXT")) == ([], [])


@rule("DN-48", "DN-49", "N-16")
async def test_a_foreign_record_is_refused_with_its_owners_name(
    named: Named, me: Nameserver, you: Nameserver
) -> None:
    await me.replace(ZONE, OURS)
    with pytest.raises(Refused, match=rf"x\.{ZONE} A belongs to me"):
        await you.replace(ZONE, OTHER)
    await you.delete(ZONE, OURS.key)
    assert named.dig("x") == ["1.1.1.1"]


@rule("DN-49")
async def test_one_foreign_record_does_not_keep_the_others_out(
    named: Named, me: Nameserver, you: Nameserver
) -> None:
    await me.replace(ZONE, OURS)
    others = [rrset(f"y{n}", "A", "1.1.1.1") for n in range(50)]
    outcomes = await asyncio.gather(
        *(you.replace(ZONE, each) for each in [*others, OTHER]), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes if outcome] == [Refused]
    assert named.dig("y49") == ["1.1.1.1"]


@rule("DN-49")
async def test_an_unmarked_record_with_the_wanted_values_is_adopted(
    named: Named, nameserver: Nameserver, me: Nameserver
) -> None:
    await nameserver.replace(ZONE, OURS)
    with pytest.raises(Refused, match="bears no owner's mark"):
        await me.replace(ZONE, OTHER)
    await me.delete(ZONE, OURS.key)
    assert named.dig("x") == ["1.1.1.1"]
    await me.replace(ZONE, OURS)
    assert named.dig(MARK, "TXT") == ['"heritage=windowbox,owner=me"']


@rule("DN-47", "DN-49")
@pytest.mark.parametrize("claim", [HELD, Unclaimed()], ids=["held", "unclaimed"])
@pytest.mark.parametrize("deleting", [False, True], ids=["replace", "delete"])
async def test_a_claim_lost_since_the_lookup_changes_nothing(
    named: Named, you: Nameserver, claim: Held | Unclaimed, deleting: bool
) -> None:
    await you.replace(ZONE, OURS)
    change = Delete(OTHER.key, "me") if deleting else Replace(OTHER, "me")
    update = Update(ZONE)
    ownership.guard(update, change, claim, ZONE)
    ownership.write(update, change, ZONE)
    connection = await connected("127.0.0.1", named.port, "the server", None, 5)
    [rcode] = await connection.update([update.octets()])
    connection.close()
    assert rcode in (Rcode.NXRRSET, Rcode.YXRRSET)
    assert named.dig("x") == ["1.1.1.1"]
    assert named.dig(MARK, "TXT") == ['"heritage=windowbox,owner=you"']


async def test_a_claim_below_a_wildcard_is_no_existing_record(
    named: Named, me: Nameserver, you: Nameserver
) -> None:
    await you.replace(ZONE, rrset("*.w", "A", "9.9.9.9"))
    await me.replace(ZONE, rrset("x.w", "A", "1.1.1.1"))
    assert named.dig("x.w") == ["1.1.1.1"]
    assert named.dig("_windowbox-wildcard-a.w", "TXT") == ['"heritage=windowbox,owner=you"']


@cases("name length", ("label", "x" * 63, 13 + 63 + 21), ("name", ".".join(["x" * 57] * 4), 58))
def test_a_mark_has_room_however_long_the_name_is(name: str, length: int) -> None:
    mark = ownership.mark_name(RecordKey(f"{name}.{ZONE}", "A"), ZONE)
    assert len(mark) == length
    assert all(len(label) <= 63 for label in mark.split("."))


NUMBER = 800
"""So many names, of 86 bytes with their mark, take more than one message."""
GOOD = {"name": "good", "secret": KEY}


@rule("DN-49")
@pytest.mark.parametrize(
    "key", [pytest.param(GOOD, id="signed"), pytest.param(None, id="unsigned", marks=pytest.mark.long)]
)
async def test_all_of_many_marks_are_found(
    named: Named, opened: Opener, you: Nameserver, key: dict[str, str] | None
) -> None:
    ours = opened(settings(named.server, ownership="us", key=key))
    names = [f"n{number}" for number in range(NUMBER)] + ["*.wild", "deep.er"]
    await asyncio.gather(*(ours.replace(ZONE, rrset(n, "A", "1.1.1.1"), resource=f"for {n}") for n in names))
    await ours.replace(ZONE, rrset("alias", "CNAME", "elsewhere.example.com"), resource="for alias")
    await ours.replace(ZONE, rrset("unknown", "A", "1.1.1.1"))
    await you.replace(ZONE, rrset("theirs", "A", "1.1.1.1"), resource="for theirs")
    named.nsupdate(f"update add plain.{ZONE} 60 TXT heritage=windowbox,resource=for-plain")
    wanted = {Mark(RecordKey(f"{name}.{ZONE}", "A"), f"for {name}") for name in names}
    wanted.add(Mark(RecordKey(f"alias.{ZONE}", "CNAME"), "for alias"))
    assert set(await ours.marks(ZONE)) == wanted


async def test_a_refused_transfer_is_reported(start_named: NamedFactory, opened: Opener) -> None:
    named = start_named({ZONE: "allow-update { any; }; allow-transfer { none; };"})
    with pytest.raises(Refused, match=rf"allows no transfer of zone {ZONE}"):
        await opened(settings(named.server, ownership="us")).marks(ZONE)


async def test_a_transfer_with_a_wrong_secret_is_not_believed(named: Named, opened: Opener) -> None:
    other = {"name": "good", "secret": "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItMTIz"}
    with pytest.raises(TransientError, match="the TSIG secret of key good is not the one"):
        await opened(settings(named.server, ownership="us", key=other)).marks(ZONE)


async def test_a_transfer_from_a_server_that_is_away_fails(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, ownership="us"))
    named.stop()
    with pytest.raises(TransientError, match="cannot connect"):
        await nameserver.marks(ZONE)


@rule("DN-49")
async def test_objects_of_one_owner_share_a_name_without_conflicts(named: Named, opened: Opener) -> None:
    clients = [opened(settings(named.server, ownership="us")) for _ in range(2)]
    record = rrset("shared", "A", "1.1.1.1")

    async def write(nameserver: Nameserver, resource: str) -> None:
        for _ in range(50):
            await nameserver.replace(ZONE, record, resource=resource)

    await asyncio.gather(*(write(client, f"r{number}") for number, client in enumerate(clients)))
    [mark] = await clients[0].marks(ZONE)
    assert mark.resource in ("r0", "r1")


async def test_a_zone_that_fits_one_message_is_read(named: Named, opened: Opener) -> None:
    assert await opened(settings(named.server, ownership="us")).marks(ZONE) == []
