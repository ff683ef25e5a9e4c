"""What becomes of a connection that the server ends, or that breaks."""

from __future__ import annotations

import asyncio

import pytest

from bus import streams, subjects
from bus.transport.connection import Bus, connected
from tests.support.natsserver import NatsServer, ensured, port_of
from tests.support.proxy import proxy
from tests.support.running import eventually, running, soon
from windowbox.errors import Malformed, Unreachable
from windowbox.models.refs import ObjectRef
from windowbox.settings.bussettings import Access


async def test_a_connection_ended_by_a_protocol_error_ends_its_watch(nats_url: str) -> None:
    async with connected(Access(nats_url)) as bus:
        assert not bus.dead
        await bus.client.publish("x" * 5000, b"")
        with pytest.raises(Unreachable, match="maximum control line exceeded"):
            await soon(bus.watch())
        assert bus.lost_for > 0


async def test_questions_fail_at_once_when_the_connection_is_closed(nats_url: str) -> None:
    async with connected(Access(nats_url)) as bus:
        await ensured(bus)
        await bus.client.publish("x" * 5000, b"")
        await eventually(lambda: bool(bus.dead))
        with pytest.raises(Unreachable):
            await bus.last(streams.OBJECTS, "object.a.b.c.d")


async def test_a_server_that_is_away_is_waited_for(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus, running(bus.watch()):
        nats.stop()
        await eventually(lambda: bus.lost_for > 0)
        assert not bus.dead
        nats.start()
        await eventually(lambda: bus.connected)
        assert bus.lost_for == 0.0


async def test_connecting_again_that_was_given_up_is_noticed(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        nats.stop()
        await eventually(lambda: bus.lost_for > 0)
        task = bus.client._reconnection_task
        assert task
        task.cancel()
        with pytest.raises(Unreachable, match="closed for ever"):
            await soon(bus.watch())


async def test_a_flush_comes_after_what_was_sent_before_it(one_server: NatsServer) -> None:
    async with (
        proxy(port_of(one_server.url)) as between,
        connected(Access(f"nats://127.0.0.1:{between.port}")) as bus,
    ):
        between.recorded = bytearray()
        await bus.client.subscribe("color.red")
        await bus.client.flush()
        assert [line.split()[0] for line in between.recorded.splitlines()] == [b"SUB", b"PING"]


async def test_more_than_the_socket_takes_at_once_arrives_in_order(
    one_server: NatsServer,
) -> None:
    sent = [b"%06d" % number * 20_000 for number in range(200)]
    async with connected(Access(one_server.url)) as bus:
        inbox, heard = bus.client.new_inbox(), list[bytes]()
        await bus.client.listen(inbox, lambda message: heard.append(message.data))
        for data in sent:
            await bus.client.publish(inbox, data)
            await asyncio.sleep(0)  # so that each is written by itself, whatever the socket has not taken yet
        await eventually(lambda: len(heard) == len(sent))
        assert heard == sent


async def test_what_is_said_is_heard_until_nobody_listens(one_server: NatsServer) -> None:
    async with connected(Access(one_server.url)) as bus:
        inbox, heard = bus.client.new_inbox(), list[bytes]()
        subscription = await bus.client.listen(inbox, lambda message: heard.append(message.data))
        one_server.stop()
        await eventually(lambda: bus.lost_for > 0)
        one_server.start()
        await eventually(lambda: bus.connected)
        await bus.client.publish(inbox, b"after the server was back")
        await bus.client.flush()
        await subscription.unsubscribe()
        await bus.client.publish(inbox, b"after nobody listened")
        await bus.client.flush()
        assert heard == [b"after the server was back"]
        assert not bus.client._listeners


async def test_a_subject_the_server_rejects_is_never_sent(bus: Bus) -> None:
    with pytest.raises(Malformed, match="too many"):
        await bus.publish(f"object.{'x' * 4000}", b"")
    assert not bus.dead


async def test_an_object_with_the_longest_names_is_stored_and_found(bus: Bus) -> None:
    ref = ObjectRef(*["." * 20_000] * 4)
    subject = subjects.seen(ref)
    sequence = await bus.publish(subject, b"{}")
    stored = await bus.last(streams.OBJECTS, subject)
    assert stored
    assert (stored.sequence, stored.subject) == (sequence, subject)
    assert await bus.publish(subjects.wish("local-ext-shoot-after-worker", subjects.key(ref)), b"{}")
