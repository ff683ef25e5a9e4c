"""Batches, order, culprits, the breaker, and servers that die, hang, move, or were never there."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from dns.rdatatype import RdataType
from dns.update import UpdateMessage

from sandbox import processes
from tests.servers.nameserver.conftest import (
    ZONE,
    Named,
    NamedFactory,
    Opener,
    persist,
    rrset,
    settings,
)
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.nameserver import Nameserver, messages
from windowbox.clients.nameserver.batches import BatchSender, Counters
from windowbox.clients.nameserver.changes import Change, ChangeQueue, Delete, Item, Replace
from windowbox.clients.nameserver.classify import Failure
from windowbox.clients.nameserver.connection import TimedOut, connected
from windowbox.errors import Conflict, Malformed, TransientError, Unreachable
from windowbox.models.recordsets import RecordKey, RecordSet


@rule("DN-69", "DN-94")
async def test_concurrent_changes_share_messages(named: Named, nameserver: Nameserver) -> None:
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
async def test_the_newest_of_many_changes_decides_for_all(named: Named, nameserver: Nameserver) -> None:
    storm = [rrset("x", "A", f"10.0.0.{n}") for n in range(200)]
    await asyncio.gather(*(nameserver.replace(ZONE, wanted) for wanted in storm))
    assert named.dig("x") == ["10.0.0.199"]
    assert nameserver.stats()[0].rrsets == 1


@rule("DN-68")
async def test_a_stream_of_changes_ends_with_the_last(named: Named, nameserver: Nameserver) -> None:
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
async def test_a_server_refusing_all_is_asked_few_times(start_named: NamedFactory, opened: Opener) -> None:
    named = start_named(options="update-policy { grant nobody zonesub ANY; };")
    nameserver = opened(settings(named.server))
    records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(200)]
    outcomes = await asyncio.gather(*(nameserver.replace(ZONE, r) for r in records), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {TransientError}
    assert nameserver.stats()[0].messages < 40


@rule("V11", "DN-7", "DN-40", "DN-88")
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
    assert named.dig("x0") == ["1.1.1.1"]


async def test_cancelled_changes_are_not_sent(named: Named, nameserver: Nameserver) -> None:
    given_up = asyncio.create_task(nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1")))
    await asyncio.sleep(0)
    given_up.cancel()
    await nameserver.replace(ZONE, rrset("y", "A", "1.1.1.1"))
    assert named.dig("x") == []


async def test_one_cancelled_change_spares_the_others(named: Named, nameserver: Nameserver) -> None:
    wanted = (rrset("x", "A", f"10.0.0.{n}") for n in (1, 2))
    first, second = (asyncio.create_task(nameserver.replace(ZONE, one)) for one in wanted)
    await asyncio.sleep(0)
    second.cancel()
    await first
    assert named.dig("x") == ["10.0.0.2"]


async def test_closing_ends_every_wait(named: Named, nameserver: Nameserver) -> None:
    with named.paused():
        waiting = asyncio.create_task(nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1")))
        await asyncio.sleep(0.05)  # it is on its way: a server that stands still tells nobody
        await nameserver.aclose()
        with pytest.raises(Unreachable, match="was closed"):
            await waiting


@rule("DN-31")
async def test_a_record_left_by_a_deletion_is_detected(named: Named, nameserver: Nameserver) -> None:
    """Somebody writes it again between the deletion and its proof: so only the proof is asked here."""
    wanted = rrset("x", "A", "1.1.1.1")
    await nameserver.replace(ZONE, wanted)
    connection = await connected("127.0.0.1", named.port, "the server", None, 5)
    kept, gone = Item(Delete(wanted.key)), Item(Delete(rrset("y", "A").key))
    for item in (kept, gone):
        item.waiters.append(asyncio.get_running_loop().create_future())
    await BatchSender(connection, ZONE, frozenset(), Counters()).prove([kept, gone])
    connection.close()
    assert gone.waiters[0].result() is None
    with pytest.raises(Conflict, match="was written again by another program"):
        kept.waiters[0].result()


def add(queue: ChangeQueue, change: Change | RecordSet) -> asyncio.Future[None]:
    """Add a change, or the replacement of a record set; whoever waits for it."""
    if isinstance(change, RecordSet):
        change = Replace(change)
    waiter = asyncio.get_running_loop().create_future()
    queue.add(change, waiter)
    return waiter


@rule("DN-32", "DN-68")
async def test_a_name_in_flight_waits_and_deletions_come_first() -> None:
    backlog = ChangeQueue()
    add(backlog, rrset("x", "A", "1.1.1.1"))
    add(backlog, Delete(rrset("x", "CNAME").key))
    batch = backlog.take(10, 1000)
    add(backlog, rrset("x", "AAAA", "::1"))
    assert [item.key.type for item in batch] == ["CNAME", "A"]
    assert backlog.take(10, 1000) == []
    backlog.release(batch)
    assert [item.key.type for item in backlog.take(10, 1000)] == ["AAAA"]


async def test_requeued_changes_go_first_unless_newer_ones_wait() -> None:
    backlog = ChangeQueue()
    older = add(backlog, rrset("x", "A", "1.1.1.1"))
    add(backlog, rrset("z", "A", "1.1.1.1"))
    batch = backlog.take(10, 1000)
    add(backlog, rrset("y", "A", "2.2.2.2"))
    add(backlog, rrset("x", "A", "2.2.2.2"))
    backlog.release(batch)
    backlog.requeue(batch)
    again = backlog.take(10, 1000)
    assert [item.key.name.split(".")[0] for item in again] == ["z", "y", "x"]
    again[2].succeed()
    assert older.done()


async def test_a_full_queue_blocks_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windowbox.clients.nameserver.changes.MOST_WAITING", 2)
    backlog = ChangeQueue()
    for n in range(2):
        add(backlog, rrset(f"x{n}", "A", "1.1.1.1"))
    outside = asyncio.create_task(backlog.room())
    await asyncio.sleep(0)
    assert not outside.done()
    backlog.fail_all(Failure(Unreachable, "away"))
    await outside


@cases("ownership", ("DN-42+DN-72+DN-86", None), ("DN-49-claimed", "me"))
async def test_unanswered_updates_are_resent_after_a_restart(
    named: Named, opened: Opener, ownership: str | None
) -> None:
    nameserver = opened(settings(named.server, ownership=ownership, max_rrsets=40))
    records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(400)]
    await nameserver.replace(ZONE, records[0])
    writing = asyncio.gather(*(nameserver.replace(ZONE, record) for record in records))
    await nameserver.replace(ZONE, rrset("early", "A", "1.1.1.1"))
    named.kill()
    await asyncio.to_thread(named.start)
    await writing
    assert await nameserver.drifted(ZONE, records) == []
    assert nameserver.stats()[0].reconnections >= 1
    marks = ['"heritage=windowbox,owner=me"'] if ownership else []
    assert named.dig("_windowbox-a.x399", "TXT") == marks


@rule("DN-42", "DN-73")
async def test_late_answers_of_a_hanging_server_are_ignored(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, message_timeout=0.3))
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    with named.paused():
        writing = asyncio.create_task(nameserver.replace(ZONE, rrset("x", "A", "2.2.2.2")))
        await asyncio.sleep(0.5)  # longer than message_timeout
    await writing
    assert named.dig("x") == ["2.2.2.2"]
    assert nameserver.stats()[0].reconnections >= 1


async def test_an_answer_that_does_not_come_ends_the_connection(named: Named) -> None:
    connection = await connected("127.0.0.1", named.port, "the server", None, 0.2)
    with named.paused():
        with pytest.raises(TimedOut, match=r"no answer from the server within 0.2 s"):
            await connection.exchange([messages.query(messages.name(ZONE), RdataType.SOA)])
        assert not connection.alive


@rule("DN-44", "DN-45", "N-14")
@pytest.mark.parametrize("reading", [False, True], ids=["replace", "read"])
async def test_an_unreachable_server_is_named_with_the_cause(opened: Opener, reading: bool) -> None:
    port = processes.free_port()
    nameserver = opened(settings(f"127.0.0.1:{port}", patience=0.3))
    wanted = rrset("x", "A", "1.1.1.1")
    with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}|could be reached") as raised:
        await (nameserver.read(ZONE, wanted.key) if reading else nameserver.replace(ZONE, wanted))
    assert raised.value.codes == ()
    with pytest.raises(Unreachable, match="onnect"):
        await nameserver.replace(ZONE, wanted)


@rule("DN-74")
async def test_an_unknown_server_name_is_reported(opened: Opener) -> None:
    nameserver = opened(settings("no-such-host.invalid:53", patience=0.1))
    with pytest.raises(Unreachable, match=r"cannot find no-such-host\.invalid"):
        await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))


@rule("DN-74")
async def test_the_next_address_takes_over(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(f"127.0.0.1:{processes.free_port()}", f"[::1]:{named.port}", named.server))
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    assert named.dig("x") == ["1.1.1.1"]


@rule("DN-74")
async def test_a_server_without_the_zone_is_skipped(
    named: Named, start_named: NamedFactory, opened: Opener
) -> None:
    stranger = start_named({"example.com": "allow-update { any; };"})
    nameserver = opened(settings(stranger.server, named.server))
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    assert named.dig("x") == ["1.1.1.1"]


def test_the_client_works_on_uvloop(named: Named) -> None:
    async def write() -> list[RecordKey]:
        nameserver = Nameserver(settings(named.server))
        records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(300)]
        await asyncio.gather(*(nameserver.replace(ZONE, record) for record in records))
        drifted = await nameserver.drifted(ZONE, [*records, rrset("y", "A", "1.1.1.1")])
        await nameserver.aclose()
        return drifted

    assert uvloop.run(write()) == [RecordKey(f"y.{ZONE}", "A")]


@rule("DN-67")
async def test_thousands_of_replies_match_their_requests(named: Named) -> None:
    connection = await connected("127.0.0.1", named.port, "the server", None, 5)
    questions = [
        [messages.query(messages.name(f"x{n}.{ZONE}"), RdataType.A) for n in range(1000)] for _ in range(3)
    ]
    try:
        groups = await asyncio.gather(*map(connection.exchange, questions))
    finally:
        connection.close()
    assert [len(group) for group in groups] == [1000, 1000, 1000]


@rule("V18", "DN-65")
async def test_a_message_that_is_too_long_is_not_sent(named: Named) -> None:
    connection = await connected("127.0.0.1", named.port, "the server", None, 5)
    update = UpdateMessage(messages.name(ZONE))
    for n in range(20):
        text = messages.rrset(rrset(f"x{n}", "TXT", "x" * 4000))
        update.add(text.name, text.to_rdataset())
    with pytest.raises(Malformed, match="too long"):
        await connection.exchange([update])
    [reply] = await connection.exchange([messages.query(messages.name(f"x0.{ZONE}"), RdataType.TXT)])
    connection.close()
    assert reply.answer == []


@rule("DN-43")
async def test_a_change_that_loses_three_connections_fails(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, message_timeout=0.1, patience=0.5))
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    with named.paused(), pytest.raises(Unreachable, match=f"127.0.0.1:{named.port}"):
        await nameserver.replace(ZONE, rrset("x", "A", "2.2.2.2"))


async def test_closing_fails_requests_that_await_a_connection(opened: Opener) -> None:
    nameserver = opened(settings(f"127.0.0.1:{processes.free_port()}"))
    reading = asyncio.create_task(nameserver.read(ZONE, rrset("x", "A").key))
    await asyncio.sleep(0)
    await nameserver.aclose()
    with pytest.raises(Unreachable, match="was closed"):
        await reading
