"""Servers that die, hang, move, or were never there."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from dns.message import Message
from dns.rdatatype import RdataType
from dns.update import UpdateMessage

from tests.servers.nameserver.conftest import ZONE, Named, NamedFactory, Opener, free_port, rrset, settings
from tests.support.rules import rule
from windowbox.clients.nameserver import Nameserver, messages
from windowbox.clients.nameserver.connection import TimedOut, connected
from windowbox.errors import Malformed, Unreachable
from windowbox.models.recordsets import RecordKey


@rule("DN-42", "DN-72", "DN-86")
async def test_unanswered_updates_are_resent_after_a_restart(named: Named, nameserver: Nameserver) -> None:
    records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(2000)]
    await nameserver.replace(ZONE, records[0])
    writing = asyncio.gather(*(nameserver.replace(ZONE, record) for record in records))
    await nameserver.replace(ZONE, rrset("early", "A", "1.1.1.1"))
    named.kill()
    await asyncio.to_thread(named.start)

    await writing
    assert await nameserver.drifted(ZONE, records) == []
    assert nameserver.stats()[0].reconnections >= 1


@rule("DN-42", "DN-73")
async def test_late_answers_of_a_hanging_server_are_ignored(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, message_timeout=0.3))
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    named.pause()
    writing = asyncio.create_task(nameserver.replace(ZONE, rrset("x", "A", "2.2.2.2")))
    try:
        await asyncio.sleep(0.5)  # longer than message_timeout
    finally:
        named.resume()

    await writing
    assert named.dig("x") == ["2.2.2.2"]
    assert nameserver.stats()[0].reconnections >= 1


async def test_an_answer_that_does_not_come_ends_the_connection(named: Named) -> None:
    connection = await connected("127.0.0.1", named.port, "the server", None, 0.2)
    named.pause()
    try:
        with pytest.raises(TimedOut, match=r"no answer from the server within 0.2 s"):
            await connection.exchange([messages.query(messages.name(ZONE), RdataType.SOA)])
        assert not connection.alive
    finally:
        named.resume()


@rule("DN-44", "DN-45", "N-14")
@pytest.mark.parametrize("reading", [False, True], ids=["replace", "read"])
async def test_a_server_that_stays_away_is_told_by_name_and_cause(opened: Opener, reading: bool) -> None:
    port = free_port()
    nameserver = opened(settings(f"127.0.0.1:{port}", patience=0.3))
    wanted = rrset("x", "A", "1.1.1.1")
    with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}|could be reached") as raised:
        await (nameserver.read(ZONE, wanted.key) if reading else nameserver.replace(ZONE, wanted))
    assert raised.value.codes == ()
    with pytest.raises(Unreachable, match="onnect"):
        await nameserver.replace(ZONE, wanted)


@rule("DN-74")
async def test_a_server_whose_name_is_unknown_is_told(opened: Opener) -> None:
    nameserver = opened(settings("no-such-host.invalid:53", patience=0.1))
    with pytest.raises(Unreachable, match=r"cannot find no-such-host\.invalid"):
        await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))


@rule("DN-74")
async def test_the_next_address_takes_over(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(f"127.0.0.1:{free_port()}", f"[::1]:{named.port}", named.server))
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


@rule("DN-66")
async def test_a_connection_that_the_server_ended_is_made_anew(
    start_named: NamedFactory, opened: Opener
) -> None:
    named = start_named()
    nameserver = opened(settings(named.server))
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    announced = asyncio.ensure_future(anext(nameserver.reconnected()))
    named.stop()
    await asyncio.to_thread(named.start)

    assert await announced == ZONE
    await nameserver.replace(ZONE, rrset("x", "A", "2.2.2.2"))
    assert named.dig("x") == ["2.2.2.2"]


def test_all_this_works_on_the_loop_of_the_products_processes(named: Named) -> None:
    async def write() -> list[RecordKey]:
        nameserver = Nameserver(settings(named.server))
        records = [rrset(f"x{n}", "A", "1.1.1.1") for n in range(300)]
        await asyncio.gather(*(nameserver.replace(ZONE, record) for record in records))
        drifted = await nameserver.drifted(ZONE, [*records, rrset("y", "A", "1.1.1.1")])
        await nameserver.aclose()
        return drifted

    assert uvloop.run(write()) == [RecordKey(f"y.{ZONE}", "A")]


@rule("DN-67")
async def test_replies_find_their_questions_whatever_their_number(named: Named) -> None:
    connection = await connected("127.0.0.1", named.port, "the server", None, 5)

    def questions() -> list[Message]:
        return [messages.query(messages.name(f"x{n}.{ZONE}"), RdataType.A) for n in range(3000)]

    try:
        groups = await asyncio.gather(*(connection.exchange(questions()) for _ in range(3)))
    finally:
        connection.close()
    assert [len(group) for group in groups] == [3000, 3000, 3000]


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
async def test_a_change_that_loses_three_connections_is_given_back(named: Named, opened: Opener) -> None:
    nameserver = opened(settings(named.server, message_timeout=0.1, patience=0.5))
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1"))
    named.pause()
    try:
        with pytest.raises(Unreachable, match=f"127.0.0.1:{named.port}"):
            await nameserver.replace(ZONE, rrset("x", "A", "2.2.2.2"))
    finally:
        named.resume()


async def test_closing_tells_those_who_wait_for_a_connection(opened: Opener) -> None:
    nameserver = opened(settings(f"127.0.0.1:{free_port()}"))
    reading = asyncio.create_task(nameserver.read(ZONE, rrset("x", "A").key))
    await asyncio.sleep(0)
    await nameserver.aclose()
    with pytest.raises(Unreachable, match="was closed"):
        await reading
