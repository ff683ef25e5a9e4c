"""What a zone holds of ours is read by a zone transfer."""

from __future__ import annotations

import asyncio

import pytest

from tests.servers.nameserver.conftest import KEY, ZONE, Named, NamedFactory, Opener, rrset, settings
from tests.support.rules import rule
from windowbox.clients.nameserver import Mark, Nameserver
from windowbox.errors import Refused, TransientError
from windowbox.models.recordsets import RecordKey

NUMBER = 3000
"""So many names take more than one message."""
GOOD = {"name": "good", "secret": KEY}


@rule("DN-49")
@pytest.mark.parametrize("key", [GOOD, None], ids=["signed", "unsigned"])
async def test_all_marks_are_found_however_many_there_are(
    named: Named, opened: Opener, key: dict[str, str] | None
) -> None:
    ours = opened(settings(named.server, ownership="us", key=key))
    names = [f"n{number}" for number in range(NUMBER)] + ["*.wild", "deep.er"]
    await asyncio.gather(*(ours.replace(ZONE, rrset(n, "A", "1.1.1.1"), resource=f"for {n}") for n in names))
    await ours.replace(ZONE, rrset("alias", "CNAME", "elsewhere.example.com"), resource="for alias")
    await ours.replace(ZONE, rrset("unknown", "A", "1.1.1.1"))
    await ours.replace(ZONE, rrset("theirs", "A", "1.1.1.1"), owner="them", resource="for theirs")
    named.nsupdate(f"update add plain.{ZONE} 60 TXT heritage=windowbox,resource=for-plain")

    wanted = {Mark(RecordKey(f"{name}.{ZONE}", "A"), f"for {name}") for name in names}
    wanted.add(Mark(RecordKey(f"alias.{ZONE}", "CNAME"), "for alias"))
    assert set(await ours.marks(ZONE)) == wanted


async def test_a_transfer_that_the_server_refuses_is_told(start_named: NamedFactory, opened: Opener) -> None:
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
