"""Reading streams from beginning to end while others write and delete."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from bus import intents, streams, subjects
from bus.messages import BODY, OPERATION, PREDECESSOR, UID, VERSION, StatusIntent
from bus.transport import consumers
from bus.transport.connection import Bus, WrongSequence, connected
from bus.views import View
from tests.servers.bus.handlers import key
from tests.support.natsserver import NatsServer, ensured, made_anew
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.errors import Superseded, Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, ObjectRef
from windowbox.settings.bussettings import Access


def space(name: str) -> ObjectRef:
    return ObjectRef("runtime", NAMESPACES.id, "", name)


async def announce(bus: Bus, name: str, color: str, operation: str = "MODIFIED") -> int:
    headers = {OPERATION: operation, UID: name, VERSION: "1", PREDECESSOR: "0"}
    body = b'{"metadata": {"labels": {"color": "%s"}}}' % color.encode()
    sequence = await bus.publish(subjects.seen(space(name)), body, headers)
    assert sequence
    return sequence


def color_of(_: ObjectRef, object: Object) -> str | None:
    return object.labels.get("color")


async def test_a_snapshot_ends_although_messages_are_deleted_meanwhile(bus: Bus) -> None:
    for number in range(3000):
        await bus.client.publish(subjects.wish("test", key(f"web-{number}")), bytes(10_000))
    await bus.client.flush()
    read: list[str] = []
    async with asyncio.timeout(60):
        async for stored in consumers.snapshot(bus, streams.TRIGGERS, ["trigger.test.>"]):
            if not read:
                await bus.purge(streams.TRIGGERS, "trigger.test.>")
            read.append(stored.subject)
    assert len(set(read)) == len(read)


async def test_a_snapshot_of_nothing_is_empty(bus: Bus) -> None:
    assert [s async for s in consumers.snapshot(bus, streams.TRIGGERS, ["trigger.test.>"])] == []


async def test_a_reading_is_complete_once(bus: Bus) -> None:
    await announce(bus, "one", "red")
    await announce(bus, "one", "blue")
    await announce(bus, "two", "red")
    colors: dict[str, str | None] = {}
    completed: list[dict[str, str | None]] = []
    async for stored in consumers.follow(bus, streams.OBJECTS, ["object.>"]):
        if stored is None:
            completed.append(dict(colors))
            await announce(bus, "three", "gray")
            continue
        # A server that lags behind the others may deliver an earlier version, too.
        colors[stored.headers[UID]] = color_of(space(""), Object(orjson.loads(stored.data)))
        if "three" in colors:
            break
    assert completed == [{"one": "blue", "two": "red"}]
    assert colors["three"] == "gray"


async def test_a_view_knows_what_was_and_what_comes(bus: Bus) -> None:
    await announce(bus, "one", "red")
    await announce(bus, "two", "blue")
    view = View(bus, NAMESPACES.id, color_of, index=lambda color: color)
    async with running(view.run()):
        await soon(view.complete.wait())
        assert dict(view.items()) == {space("one"): "red", space("two"): "blue"}

        await announce(bus, "one", "blue")
        await eventually(lambda: view.get(space("one")) == "blue")
        assert sorted(view.refs("blue")) == [space("one"), space("two")]
        assert view.refs("red") == []

        await announce(bus, "two", "blue", "DELETED")
        await eventually(lambda: view.get(space("two")) is None)
        assert view.refs("blue") == [space("one")]


async def test_a_view_keeps_objects_that_are_too_large_for_the_bus_as_they_were(bus: Bus) -> None:
    changed = asyncio.Event()
    view = View(bus, NAMESPACES.id, color_of, changed=changed.set)
    await announce(bus, "one", "red")
    async with running(view.run()):
        await soon(view.complete.wait())
        assert list(view.omitted()) == []
        changed.clear()
        large = {OPERATION: "MODIFIED", UID: "one", VERSION: "2", PREDECESSOR: "1", BODY: "omitted"}
        await bus.publish(subjects.seen(space("one")), b"", large)
        await soon(changed.wait())
        assert list(view.omitted()) == [space("one")]
        assert view.get(space("one")) == "red"
        changed.clear()
        await announce(bus, "one", "red", "DELETED")
        await soon(changed.wait())
        assert list(view.omitted()) == []
        assert view.get(space("one")) is None


async def test_a_view_starts_afresh_after_a_gap(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
        await announce(bus, "old", "red")
        view = View(bus, NAMESPACES.id, color_of, index=lambda color: color)
        async with running(view.run()):
            await soon(view.complete.wait())
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))
            await announce(bus, "new", "blue")
            await eventually(lambda: view.get(space("new")) == "blue")
            assert dict(view.items()) == {space("new"): "blue"}
            assert view.refs("red") == []


@rule("V-8")
async def test_only_the_report_that_expects_the_last_one_is_taken(bus: Bus) -> None:
    early, late = (StatusIntent(uid="u", patch={"by": by}) for by in ("early", "late"))
    before = await intents.last(bus, key("web"))
    assert before == intents.Reported(None, 0)
    first = await intents.report(bus, key("web"), early, before.sequence)
    with pytest.raises(Superseded):
        await intents.report(bus, key("web"), late, before.sequence)
    assert await intents.last(bus, key("web")) == intents.Reported(early, first)
    await intents.report(bus, key("web"), late, first)
    assert (await intents.last(bus, key("web"))).intent == late


@rule("V-1")
async def test_the_report_of_a_recreated_object_is_kept(bus: Bus) -> None:
    newer = StatusIntent(uid="newer", patch={})
    await intents.report(bus, key("web"), newer, 0)
    await intents.forget(bus, key("web"), "older")
    assert (await intents.last(bus, key("web"))).intent == newer
    await intents.forget(bus, key("web"), "newer")
    assert (await intents.last(bus, key("web"))).intent is None


async def test_a_write_that_expects_something_else_is_refused(bus: Bus) -> None:
    first = await bus.publish("intent.x", b"1")
    await bus.publish("intent.x", b"2", expect_last=first)
    with pytest.raises(WrongSequence):
        await bus.publish("intent.x", b"3", expect_last=first)


async def test_a_bus_that_is_not_there_is_given_up(nats: NatsServer) -> None:
    nats.stop()
    with pytest.raises(Unreachable, match="cannot be reached"):
        async with asyncio.timeout(60), connected(Access(nats.url), patience=0.5):
            pass


async def test_a_view_forgets_a_cluster_that_has_left(bus: Bus) -> None:
    changed = asyncio.Event()
    view: View[str] = View(bus, NAMESPACES.id, color_of, index=lambda color: color, changed=changed.set)
    all_of_it = subjects.listed("runtime", NAMESPACES.id)
    await announce(bus, "one", "red")
    await bus.publish(all_of_it, b"")
    async with running(view.run()):
        await soon(view.complete.wait())
        assert (view.refs("red"), view.listed) == ([space("one")], {"runtime"})
        changed.clear()
        await bus.publish(all_of_it, b"", {OPERATION: "DELETED"})
        await soon(changed.wait())
        assert (list(view.items()), view.refs("red"), view.listed) == ([], [], set())


async def test_a_view_tells_only_of_what_it_looks_at(bus: Bus) -> None:
    changes: list[int] = []
    view: View[str] = View(
        bus, NAMESPACES.id, color_of, index=lambda color: color, changed=lambda: changes.append(1)
    )
    await announce(bus, "one", "red")
    async with running(view.run()):
        await soon(view.complete.wait())
        before = len(changes)
        await announce(bus, "one", "red")
        await announce(bus, "one", "blue")
        await eventually(lambda: view.get(space("one")) == "blue")
    assert len(changes) == before + 1
