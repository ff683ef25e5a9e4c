"""Batches, order, culprits, and the breaker."""

from __future__ import annotations

import asyncio

import pytest

from tests.servers.nameserver.conftest import ZONE, Named, NamedFactory, Opener, persist, rrset, settings
from tests.support.rules import rule
from windowbox.clients.nameserver import Nameserver, messages
from windowbox.clients.nameserver.batches import BatchSender, Counters
from windowbox.clients.nameserver.changes import Change, ChangeQueue, Delete, Item, Replace
from windowbox.clients.nameserver.classify import Failure
from windowbox.clients.nameserver.connection import connected
from windowbox.errors import Conflict, TransientError, Unreachable
from windowbox.models.recordsets import RecordSet


@rule("DN-69", "DN-94")
async def test_what_comes_together_travels_together(named: Named, nameserver: Nameserver) -> None:
    await asyncio.gather(*(nameserver.replace(ZONE, rrset(f"x{n}", "A", "1.1.1.1")) for n in range(1000)))

    [stats] = nameserver.stats()
    assert (stats.messages, stats.rrsets, stats.waiting, stats.in_flight) == (5, 1000, 0, 0)
    assert named.serial() == 105


@rule("DN-65")
async def test_a_batch_keeps_to_its_octets(named: Named, nameserver: Nameserver) -> None:
    texts = [rrset(f"x{n}", "TXT", "y" * 4000) for n in range(8)]
    await asyncio.gather(*(nameserver.replace(ZONE, text) for text in texts))

    assert nameserver.stats()[0].messages == 2


@rule("DN-4", "DN-68", "DN-104")
async def test_the_newest_of_many_changes_wins_and_all_share_its_outcome(
    named: Named, nameserver: Nameserver
) -> None:
    storm = [rrset("x", "A", f"10.0.0.{n}") for n in range(200)]
    await asyncio.gather(*(nameserver.replace(ZONE, wanted) for wanted in storm))

    assert named.dig("x") == ["10.0.0.199"]
    assert nameserver.stats()[0].rrsets == 1


@rule("DN-68")
async def test_a_stream_of_changes_of_one_name_ends_with_the_last(
    named: Named, nameserver: Nameserver
) -> None:
    async with asyncio.TaskGroup() as group:
        for n in range(100):
            group.create_task(nameserver.replace(ZONE, rrset("x", "A", f"10.0.0.{n}")))
            for _ in range(n % 7):
                await asyncio.sleep(0)
    assert named.dig("x") == ["10.0.0.99"]


@rule("DN-1", "DN-46", "DN-75")
async def test_one_refused_record_does_not_block_200_others(named: Named, nameserver: Nameserver) -> None:
    records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(199)]
    poison = rrset("poison", "A", *(f"10.0.{n}.1" for n in range(101)))
    records.insert(77, poison)
    outcomes = await asyncio.gather(
        *(nameserver.replace(ZONE, record) for record in records), return_exceptions=True
    )

    [error] = [outcome for outcome in outcomes if outcome is not None]
    assert isinstance(error, TransientError)
    assert str(error).startswith(f"poison.{ZONE} A: ")
    assert error.codes == ()
    assert await nameserver.drifted(ZONE, records) == [poison.key]
    assert nameserver.stats()[0].messages < 20


@rule("DN-41", "DN-75")
async def test_a_server_that_refuses_every_record_is_not_asked_about_each(
    start_named: NamedFactory, opened: Opener
) -> None:
    named = start_named(options="update-policy { grant nobody zonesub ANY; };")
    nameserver = opened(settings(named.server))
    records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(200)]
    outcomes = await asyncio.gather(*(nameserver.replace(ZONE, r) for r in records), return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {TransientError}
    assert nameserver.stats()[0].messages < 40


@rule("DN-7", "DN-40")
async def test_a_zone_refusing_everything_opens_the_breaker(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, probe_interval=0.2))
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    named.rndc("freeze", ZONE)
    records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(300)]
    outcomes = await asyncio.gather(*(nameserver.replace(ZONE, r) for r in records), return_exceptions=True)

    assert any("thaw the zone" in str(outcome) for outcome in outcomes)
    assert all(isinstance(outcome, TransientError) for outcome in outcomes)
    assert nameserver.stats()[0].breaker_open
    assert nameserver.stats()[0].messages <= 4
    assert await nameserver.read(ZONE, rrset("x", "A").key) == rrset("x", "A", "1.1.1.1")

    named.rndc("thaw", ZONE)
    await persist(nameserver, records[0])
    assert not nameserver.stats()[0].breaker_open


async def test_cancelled_changes_are_not_sent(named: Named, nameserver: Nameserver) -> None:
    given_up = asyncio.create_task(nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1")))
    await asyncio.sleep(0)
    given_up.cancel()
    await nameserver.replace(ZONE, rrset("y", "A", "1.1.1.1"))

    assert named.dig("x") == []


async def test_one_cancelled_change_spares_the_others(named: Named, nameserver: Nameserver) -> None:
    first, second = (
        asyncio.create_task(nameserver.replace(ZONE, rrset("x", "A", f"10.0.0.{n}"))) for n in (1, 2)
    )
    await asyncio.sleep(0)
    second.cancel()
    await first

    assert named.dig("x") == ["10.0.0.2"]


async def test_closing_ends_every_wait(named: Named, nameserver: Nameserver) -> None:
    named.pause()
    try:
        waiting = asyncio.create_task(nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1")))
        await asyncio.sleep(0.05)  # it is on its way: a server that stands still tells nobody
        await nameserver.aclose()
        with pytest.raises(Unreachable, match="was closed"):
            await waiting
    finally:
        named.resume()


@rule("DN-31")
async def test_a_deletion_that_left_the_record_there_is_not_believed(
    named: Named, nameserver: Nameserver
) -> None:
    """Somebody writes it again between the deletion and its proof: so only the proof is asked here."""
    wanted = rrset("x", "A", "1.1.1.1")
    await nameserver.replace(ZONE, wanted)
    connection = await connected("127.0.0.1", named.port, "the server", None, 5)
    kept, gone = Item(deleting(wanted)), Item(deleting(rrset("y", "A", "1.1.1.1")))
    for item in (kept, gone):
        item.waiters.append(waiter())
    await BatchSender(connection, ZONE, frozenset(), Counters()).prove([kept, gone])
    connection.close()

    assert gone.waiters[0].result() is None
    with pytest.raises(Conflict, match="was written again by somebody else"):
        kept.waiters[0].result()


def replacing(wanted: RecordSet) -> Change:
    return Replace(wanted.key, messages.rrset(wanted))


def deleting(wanted: RecordSet) -> Change:
    return Delete(wanted.key)


def waiter() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@rule("DN-32", "DN-68")
async def test_a_name_under_way_is_left_alone_and_deletions_come_first() -> None:
    backlog = ChangeQueue()
    backlog.add(replacing(rrset("x", "A", "1.1.1.1")), waiter())
    backlog.add(deleting(rrset("x", "CNAME", "a.b")), waiter())
    batch = backlog.take(10, 1000)
    backlog.add(replacing(rrset("x", "AAAA", "::1")), waiter())

    assert [item.key.type for item in batch] == ["CNAME", "A"]
    assert backlog.take(10, 1000) == []
    backlog.release(batch)
    assert [item.key.type for item in backlog.take(10, 1000)] == ["AAAA"]


async def test_what_comes_back_goes_first_unless_something_newer_waits() -> None:
    backlog = ChangeQueue()
    older = waiter()
    backlog.add(replacing(rrset("x", "A", "1.1.1.1")), older)
    backlog.add(replacing(rrset("z", "A", "1.1.1.1")), waiter())
    batch = backlog.take(10, 1000)
    backlog.add(replacing(rrset("y", "A", "2.2.2.2")), waiter())
    backlog.add(replacing(rrset("x", "A", "2.2.2.2")), waiter())
    backlog.release(batch)
    backlog.requeue(batch)

    again = backlog.take(10, 1000)
    assert [item.key.name.split(".")[0] for item in again] == ["z", "y", "x"]
    again[2].succeed()
    assert older.done()


async def test_a_full_queue_lets_nobody_in_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windowbox.clients.nameserver.changes.MOST_WAITING", 2)
    backlog = ChangeQueue()
    for n in range(2):
        backlog.add(replacing(rrset(f"x{n}", "A", "1.1.1.1")), waiter())
    outside = asyncio.create_task(backlog.room())
    await asyncio.sleep(0)
    assert not outside.done()

    backlog.fail_all(Failure(Unreachable, "away"))
    await outside
