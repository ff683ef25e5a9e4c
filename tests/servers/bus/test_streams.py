from __future__ import annotations

import asyncio
import time
from typing import Any

import nats.errors
import pytest
from nats.aio.msg import Msg

from bus import schema, streams, subjects
from bus.schema import Schema
from bus.transport import consumers
from bus.transport.connection import ApiError, Bus, connected
from tests.support.cases import cases
from tests.support.natsserver import NatsServer, ensured, port_of
from tests.support.proxy import proxy
from tests.support.running import eventually, running, soon
from windowbox.errors import Malformed, Refused, Unreachable
from windowbox.models.refs import ObjectRef
from windowbox.settings.bussettings import Access

NEWER, CURRENT = Schema(version=2, reader=1).metadata, {"windowbox.schema": "1"}
NAMES = [
    *("OBJECTS", "TRIGGERS", "WORK", "LATER", "INTENTS", "JOURNAL", "REVIEWS"),
    *("KV_leases", "KV_clusters", "KV_addresses", "KV_edges", "KV_clouds"),
]


async def config(bus: Bus, stream: str) -> dict[str, Any]:
    found: dict[str, Any] = (await bus.api(f"STREAM.INFO.{stream}"))["config"]
    return found


async def test_all_streams_are_made_once(nats_url: str) -> None:
    async with connected(Access(nats_url)) as bus:
        assert await ensured(bus) == [f"created stream {name}" for name in NAMES]
        assert await ensured(bus) == []


async def update(bus: Bus, stream: str, **settings: Any) -> None:
    await bus.api(f"STREAM.UPDATE.{stream}", {**await config(bus, stream), **settings})


@cases(
    "changed reported kept",
    ("an-older-setting", {"max_msgs_per_subject": 3}, "max_msgs_per_subject", {"max_msgs_per_subject": 16}),
    ("what-an-operator-added", {"description": "of our team"}, "", {"description": "of our team"}),
    ("a-newer-version", {"max_msgs_per_subject": 3, "metadata": NEWER}, "", {"max_msgs_per_subject": 3}),
    ("no-version-yet", {"metadata": {"team": "ours"}}, "metadata", {"metadata": {"team": "ours", **CURRENT}}),
)
async def test_a_stream_with_other_settings_is_updated_or_left_alone(
    bus: Bus, changed: dict[str, Any], reported: str, kept: dict[str, Any]
) -> None:
    await update(bus, "OBJECTS", **changed)
    await bus.publish("object.c.k.n.web", b"kept")
    assert await ensured(bus) == ([f"updated stream OBJECTS: {reported}"] if reported else [])
    found = await config(bus, "OBJECTS")
    found["metadata"] = {key: found["metadata"][key] for key in kept.get("metadata", ())}
    assert {key: found[key] for key in kept} == kept
    last = await bus.last("OBJECTS", "object.c.k.n.web")
    assert last
    assert last.data == b"kept"
    await schema.check(bus, "OBJECTS")


async def test_reviews_move_out_of_the_journal_of_an_older_version(bus: Bus) -> None:
    await bus.api("STREAM.DELETE.REVIEWS")
    await update(bus, "JOURNAL", subjects=[*(await config(bus, "JOURNAL"))["subjects"], "review.>"])
    await bus.publish("run.pool.one", b"kept")
    assert await ensured(bus) == ["updated stream JOURNAL: subjects", "created stream REVIEWS"]
    await bus.publish("review.one", b"new")
    assert await bus.last("REVIEWS", "review.one")
    assert await bus.last("JOURNAL", "run.pool.one")


async def test_each_stream_carries_the_version_of_its_schema(bus: Bus) -> None:
    assert {schema.found(await config(bus, name)) for name in NAMES} == {schema.CURRENT}


async def test_messages_that_only_newer_versions_read_are_refused(bus: Bus) -> None:
    await update(bus, "OBJECTS", metadata=Schema(version=3, reader=2).metadata)
    reported = "stream OBJECTS has messages of schema 3, .*schema 2 or newer reads; this one has 1"
    with pytest.raises(Refused, match=reported):
        await ensured(bus)
    with pytest.raises(Refused, match=reported):
        await schema.check(bus, "OBJECTS")


async def test_a_missing_stream_passes_the_schema_check(bus: Bus) -> None:
    await bus.api("STREAM.DELETE.WORK")
    await schema.check(bus, "WORK")


async def test_a_stream_that_cannot_be_brought_up_to_date_is_explained(bus: Bus) -> None:
    await bus.api("STREAM.DELETE.WORK")
    await bus.api("STREAM.CREATE.WORK", {"name": "WORK", "subjects": ["work.>"], "storage": "file"})
    with pytest.raises(Refused, match=r"stream WORK .*retention.*nats stream rm WORK"):
        await ensured(bus)


@pytest.mark.parametrize("nats_url", ["one"], indirect=True)
async def test_three_replicas_are_requested_where_they_are_set(nats_url: str) -> None:
    async with connected(Access(nats_url)) as bus:
        with pytest.raises(ApiError, match="replicas > 1 not supported in non-clustered mode"):
            await streams.ensure(bus, replicas=3)


_UNREADABLE = r"schema 9, which windowbox with schema 8 or newer reads"


async def test_a_running_process_ends_when_a_newer_version_takes_over(one_bus: Bus) -> None:
    await one_bus.api("STREAM.DELETE.WORK")  # it is not there from the beginning
    watching = asyncio.create_task(schema.watch(one_bus, "WORK", interval=0.05))
    await streams.ensure(one_bus)
    await update(one_bus, "WORK", metadata=Schema(9, 8).metadata)  # as a newer watcher does
    with pytest.raises(Refused, match=_UNREADABLE):
        await soon(watching)


async def test_the_schema_is_checked_after_a_reconnect(one_server: NatsServer, one_bus: Bus) -> None:
    watching = asyncio.create_task(schema.watch(one_bus, "WORK", interval=3600))
    await asyncio.sleep(0)  # it asks before the stream changes
    await update(one_bus, "WORK", metadata=Schema(9, 8).metadata)  # as a newer watcher does
    one_server.restart()
    with pytest.raises(Refused, match=_UNREADABLE):
        await soon(watching)


async def test_a_protocol_error_ends_the_watch_and_fails_questions(bus: Bus) -> None:
    assert not bus.dead
    await bus.client.publish("x" * 5000, b"")
    with pytest.raises(Unreachable, match="maximum control line exceeded"):
        await soon(bus.watch())
    assert bus.dead
    assert bus.lost_for > 0
    with pytest.raises(Unreachable):
        await soon(bus.last(streams.OBJECTS, "object.a.b.c.d"))


async def test_a_server_that_is_away_is_waited_for(nats: NatsServer, nats_bus: Bus) -> None:
    async with running(nats_bus.watch()):
        nats.stop()
        await eventually(lambda: nats_bus.lost_for > 0)
        assert not nats_bus.dead
        nats.start()
        await eventually(lambda: nats_bus.connected)
        assert nats_bus.lost_for == 0.0


async def test_the_end_of_reconnecting_is_noticed(nats: NatsServer, nats_bus: Bus) -> None:
    nats.stop()
    await eventually(lambda: nats_bus.lost_for > 0)
    task = nats_bus.client._reconnection_task
    assert task
    task.cancel()
    with pytest.raises(Unreachable, match="closed for ever"):
        await soon(nats_bus.watch())


async def test_a_flush_comes_after_what_was_sent_before_it(one_server: NatsServer) -> None:
    line = proxy(port_of(one_server.url))
    async with line as between, connected(Access(f"nats://127.0.0.1:{between.port}")) as bus:
        between.recorded = bytearray()
        await bus.client.subscribe("color.red")
        await bus.client.flush()
        assert [one.split()[0] for one in between.recorded.splitlines()] == [b"SUB", b"PING"]


async def test_the_answer_to_a_flush_that_was_given_up_ends_no_reading(one_server: NatsServer) -> None:
    """Under load it comes late. nats-py would stop reading, and notice after half a minute."""
    line = proxy(port_of(one_server.url))
    async with line as between, connected(Access(f"nats://127.0.0.1:{between.port}")) as bus:
        between.hang()
        with pytest.raises(nats.errors.FlushTimeoutError):
            await bus.client.flush(0.1)  # type: ignore[arg-type]  # seconds; a fraction works
        flushing = asyncio.create_task(bus.client.flush())
        await asyncio.sleep(0)  # it runs up to where it waits
        flushing.cancel()
        between.resume()
        await bus.client.flush()
        assert await bus.api("INFO")
        assert between.opened == 1


async def test_a_listener_that_raises_ends_no_reading(one_bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    inbox, heard = one_bus.client.new_inbox(), list[bytes]()

    def act(message: Msg) -> None:
        heard.append(message.data)
        raise asyncio.InvalidStateError("a bug")

    await one_bus.client.listen(inbox, act)
    for data in (b"first", b"second"):
        await one_bus.client.publish(inbox, data)
    await one_bus.client.flush()
    assert heard == [b"first", b"second"]
    assert "a bug" in caplog.text


async def test_more_than_the_socket_takes_at_once_arrives_in_order(one_bus: Bus) -> None:
    sent = [b"%06d" % number * 20_000 for number in range(200)]
    inbox, heard = one_bus.client.new_inbox(), list[bytes]()
    await one_bus.client.listen(inbox, lambda message: heard.append(message.data))
    for data in sent:
        await one_bus.client.publish(inbox, data)
        await asyncio.sleep(0)  # so that each is written by itself, whatever the socket has not taken yet
    await eventually(lambda: len(heard) == len(sent))
    assert heard == sent


async def test_a_listener_hears_until_it_unsubscribes(one_server: NatsServer, one_bus: Bus) -> None:
    client, heard = one_bus.client, list[bytes]()
    inbox, listening = client.new_inbox(), dict(client._listeners)
    subscription = await client.listen(inbox, lambda message: heard.append(message.data))
    one_server.stop()
    await eventually(lambda: one_bus.lost_for > 0)
    one_server.start()
    await eventually(lambda: one_bus.connected)
    await client.publish(inbox, b"after the server was back")
    await client.flush()
    await subscription.unsubscribe()
    await client.publish(inbox, b"after nobody listened")
    await client.flush()
    assert heard == [b"after the server was back"]
    assert client._listeners == listening


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


async def test_a_reader_that_computes_much_does_not_hold_the_loop(one_bus: Bus) -> None:
    """All messages arrive at once. Others have turns between them nevertheless."""
    for number in range(80):
        await one_bus.publish(f"object.c.k.n.{number}", b"{}")
    turns, seen = 0, list[int]()

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)  # to the next turn of the loop

    async with running(turn()):
        async for _ in consumers.snapshot(one_bus, "OBJECTS", ["object.c.k.n.>"]):
            end = time.monotonic() + 0.01
            while time.monotonic() < end:
                pass
            seen.append(turns)
    assert len(set(seen)) > 20


async def test_long_readings_take_turns_and_short_ones_do_not_wait(one_bus: Bus) -> None:
    """The server cuts a connection for which more than 64 MB wait: two portions of 32 MB."""
    for number in range(60):
        await one_bus.publish(f"object.c.long.n.{number}", bytes(100_000))
    await one_bus.publish("object.c.short.n.1", b"{}")

    async def read(kind: str, until: asyncio.Event | None = None) -> int:
        count = 0
        async for _ in consumers.snapshot(one_bus, "OBJECTS", [f"object.c.{kind}.n.>"]):
            count += 1
            if until and count == 40:  # the server has sent the second portion
                await until.wait()
        return count

    goes_on = asyncio.Event()
    first = asyncio.create_task(read("long", goes_on))
    await eventually(one_bus.long_reading.locked)
    second = asyncio.create_task(read("long"))
    assert await soon(read("short")) == 1
    done, _ = await asyncio.wait([first, second], timeout=0.5)  # nothing tells that it waits
    assert done == set()
    goes_on.set()
    assert await soon(first) == await soon(second) == 60
    assert not one_bus.long_reading.locked()


async def test_a_connection_that_is_cancelled_while_it_is_made_ends(nats_url: str) -> None:
    async def connect() -> None:
        async with connected(Access(nats_url)):
            await asyncio.Event().wait()

    for turns in range(80):
        connecting = asyncio.create_task(connect())
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        done, _ = await asyncio.wait([connecting], timeout=5)
        connecting.cancel()  # otherwise this test would not end
        assert done, f"cancelled after {turns} turns"
