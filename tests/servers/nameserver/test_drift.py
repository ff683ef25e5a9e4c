"""A zone that was restored, emptied or edited is noticed without anybody touching an object."""

from __future__ import annotations

import asyncio

import pytest

from tests.servers.nameserver.conftest import ZONE, Named, Opener, rrset, settings
from tests.support.rules import rule
from windowbox.clients.nameserver import Nameserver, zonequeue


@rule("DN-5", "DN-31", "DN-110")
async def test_only_what_differs_has_drifted(named: Named, nameserver: Nameserver) -> None:
    records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(500)]
    await asyncio.gather(*(nameserver.replace(ZONE, record) for record in records))
    assert await nameserver.drifted(ZONE, records) == []

    named.nsupdate(
        f"update delete x7.{ZONE} A",
        f"update add x8.{ZONE} 60 A 2.2.2.2",
        f"update delete x9.{ZONE} A",
        f"update add x9.{ZONE} 61 A 1.1.1.1",
    )
    assert await nameserver.drifted(ZONE, records) == [records[7].key, records[8].key, records[9].key]


@rule("DN-87")
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
