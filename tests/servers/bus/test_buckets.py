"""Buckets: compare-and-set, and copies that notice every loss of the store. Views, and reports."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import orjson
import pytest
from nats.aio.msg import Msg

from bus import intents, streams, subjects
from bus.messages import BODY, OPERATION, PREDECESSOR, UID, VERSION, EventIntent, StatusIntent
from bus.transport import buckets, consumers
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, WrongSequence, connected
from bus.views import View
from tests.servers.bus.handlers import key
from tests.support import servers
from tests.support.natscluster import on_three
from tests.support.natsserver import NatsServer, emptied, ensured, made_anew
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.errors import Superseded
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, ObjectRef
from windowbox.settings.bussettings import Access

KEY = subjects.of_address("10.0.0.1")
OTHER = subjects.of_address("fd00::1")


class Told:
    """The calls of a bucket's listeners."""

    def __init__(self, bucket: Bucket) -> None:
        self.changes: list[tuple[str, bytes | None]] = []
        self.regresses = 0
        bucket.on_change(lambda key, value: self.changes.append((key, value)))
        bucket.on_regress(self._regressed)

    def _regressed(self) -> None:
        self.regresses += 1


@contextlib.asynccontextmanager
async def following(bus: Bus) -> AsyncIterator[tuple[Bucket, Told]]:
    bucket = Bucket(bus, streams.ADDRESSES)
    reported = Told(bucket)
    async with running(bucket.run()):
        await soon(bucket.complete.wait())
        yield bucket, reported


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", "::"])
def test_an_address_is_a_key_and_back(address: str) -> None:
    key = subjects.of_address(address)
    assert key.count(".") == 1
    assert subjects.address(key) == address
    assert subjects.waiting(key) is None


async def test_a_write_must_name_the_last_sequence(bus: Bus) -> None:
    bucket = Bucket(bus, streams.ADDRESSES)
    assert await bucket.get(KEY) == (None, 0)
    first = await bucket.put(KEY, b"one", 0)
    with pytest.raises(WrongSequence):
        await bucket.put(KEY, b"two", 0)
    second = await bucket.put(KEY, b"two", first)
    with pytest.raises(WrongSequence):
        await bucket.delete(KEY, first)
    assert await bucket.get(KEY) == (b"two", second)
    gone = await bucket.delete(KEY, second)
    assert await bucket.get(KEY) == (None, gone)
    await bucket.put(KEY, b"three", gone)


async def test_a_bucket_reports_changes_and_holds_entries(bus: Bus) -> None:
    writer = Bucket(bus, streams.ADDRESSES)
    before = await writer.put(KEY, b"before", 0)
    async with following(bus) as (bucket, reported):
        await writer.put(OTHER, b"after", None)
        await writer.delete(KEY, before)
        await soon(bucket.catch_up())
        assert {key: entry.value for key, entry in bucket.entries.items()} == {OTHER: b"after"}
        assert reported.changes == [(KEY, b"before"), (OTHER, b"after"), (KEY, None)]
        assert reported.regresses == 0


async def test_keys_that_come_and_go_are_forgotten(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async with following(bus) as (bucket, reported):
        for number in range(30):
            if number == 20:
                monkeypatch.setattr(buckets, "_KEPT", 0.0)
            await bucket.delete(f"{KEY}.{number}", await bucket.put(f"{KEY}.{number}", b"", 0))
        await bucket.put(OTHER, b"stays", None)
        await soon(bucket.catch_up())
        assert bucket._reading._seen.keys() == bucket.entries.keys() == {OTHER}
        assert reported.regresses == 0


async def test_after_catching_up_all_that_others_wrote_before_is_known(bus: Bus) -> None:
    writer = Bucket(bus, streams.ADDRESSES)
    async with following(bus) as (bucket, _):
        for number in range(200):
            key = subjects.of_address(f"10.0.1.{number}")
            await writer.put(key, b"x", 0)
            await soon(bucket.catch_up())
            assert key in bucket.entries
    for number in range(10):
        key = subjects.of_address(f"10.0.2.{number}")
        await writer.put(key, b"x", 0)
        newcomer = Bucket(bus, streams.ADDRESSES)
        async with running(newcomer.run()):
            await soon(newcomer.catch_up())
            assert key in newcomer.entries


async def test_a_purge_without_an_event_is_noticed(bus: Bus) -> None:
    async with following(bus) as (bucket, reported):
        await bucket.put(KEY, b"one", 0)
        await soon(bucket.catch_up())
        await bus.purge(f"KV_{streams.ADDRESSES}", subjects.entry(streams.ADDRESSES, ">"))
        await soon(bucket.catch_up())
        assert bucket.entries == {}
        assert reported.changes == [(KEY, b"one"), (KEY, None)]
        assert reported.regresses == 1


async def test_a_purge_of_one_entry_is_noticed(bus: Bus) -> None:
    async with following(bus) as (bucket, _):
        await bucket.put(KEY, b"one", 0)
        await bucket.put(OTHER, b"two", 0)
        await bucket.put(KEY, b"three", None)
        await soon(bucket.catch_up())
        await bus.purge(f"KV_{streams.ADDRESSES}", subjects.entry(streams.ADDRESSES, OTHER))
        await soon(bucket.catch_up())
        assert list(bucket.entries) == [KEY]


async def test_a_recreated_bucket_is_noticed(bus: Bus) -> None:
    async with following(bus) as (bucket, reported):
        await bucket.put(KEY, b"one", 0)
        await soon(bucket.catch_up())
        await bus.api(f"STREAM.DELETE.KV_{streams.ADDRESSES}")
        await ensured(bus)
        await bucket.put(OTHER, b"two", 0)
        await soon(bucket.catch_up())
        assert list(bucket.entries) == [OTHER]
        assert reported.regresses == 1


async def test_a_lost_connection_alone_is_no_regress(nats: NatsServer, nats_bus: Bus) -> None:
    async with following(nats_bus) as (bucket, reported):
        await bucket.put(KEY, b"one", 0)
        await soon(bucket.catch_up())
        nats.stop()
        await eventually(lambda: not bucket.complete.is_set())
        nats.start()
        await soon(bucket.complete.wait())
        await soon(bucket.catch_up())
        assert reported.changes == [(KEY, b"one")]
        assert reported.regresses == 0


async def test_a_store_that_was_wiped_is_noticed(nats: NatsServer, nats_bus: Bus) -> None:
    async with following(nats_bus) as (bucket, reported):
        await bucket.put(KEY, b"one", 0)
        await soon(bucket.catch_up())
        nats.wipe()
        await eventually(lambda: not bucket.complete.is_set())
        nats.start()
        await eventually(lambda: made_anew(nats_bus))
        await soon(bucket.complete.wait())
        assert bucket.entries == {}
        assert reported.regresses == 1


async def added(bucket: Bucket) -> None:
    await bucket.put(OTHER, b"lost", 0)


async def rewritten(bucket: Bucket) -> None:
    await bucket.put(KEY, b"lost", None)


async def deleted(bucket: Bucket) -> None:
    await bucket.delete(KEY, None)


async def come_and_gone(bucket: Bucket) -> None:
    await bucket.delete(OTHER, await bucket.put(OTHER, b"lost", 0))


@pytest.mark.parametrize(
    ("change", "overtaken"),
    [*((one, lost) for one in (added, rewritten, deleted) for lost in (False, True)), (come_and_gone, False)],
)
async def test_a_store_restored_from_an_older_copy_is_noticed(
    one_server: NatsServer, one_bus: Bus, tmp_path: Path, change: Callable[[Bucket], Any], overtaken: bool
) -> None:
    async with following(one_bus) as (bucket, reported):
        await bucket.put(KEY, b"one", 0)
        await soon(bucket.catch_up())
        one_server.stop()
        await eventually(lambda: not bucket.complete.is_set())
        shutil.copytree(tmp_path / "nats", tmp_path / "copy")
        one_server.start()
        await soon(bucket.complete.wait())
        await change(Bucket(one_bus, streams.ADDRESSES))
        await soon(bucket.catch_up())
        one_server.wipe()
        await eventually(lambda: not bucket.complete.is_set())
        shutil.copytree(tmp_path / "copy", tmp_path / "nats")
        if overtaken:  # others write to the store on another port until it is further than it was before
            with servers.nats_server(tmp_path / "nats") as url:
                async with connected(Access(url)) as other:
                    for number in range(10):
                        where = subjects.of_address(f"10.0.2.{number}")
                        await Bucket(other, streams.ADDRESSES).put(where, b"x", 0)
        one_server.start()
        await soon(bucket.complete.wait())
        assert bucket.entries[KEY].value == b"one"
        assert reported.regresses == 1


async def test_many_wait_for_the_same_change(bus: Bus) -> None:
    writer = Bucket(bus, streams.ADDRESSES)
    async with following(bus) as (bucket, _):
        await asyncio.gather(
            *(writer.put(subjects.of_address(f"10.0.3.{n}"), b"x", 0) for n in range(50)),
            *(bucket.catch_up() for _ in range(50)),
        )
        await soon(bucket.catch_up())
        assert len(bucket.entries) == 50


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


@contextlib.asynccontextmanager
async def viewing(bus: Bus, changed: Callable[[], None] = lambda: None) -> AsyncIterator[View[str]]:
    """A view of the colors of namespaces, once it is complete."""
    view = View(bus, NAMESPACES.id, color_of, index=lambda color: color, changed=changed)
    async with running(view.run()):
        await soon(view.complete.wait())
        yield view


async def test_a_view_holds_earlier_and_later_objects(bus: Bus) -> None:
    await announce(bus, "one", "red")
    await announce(bus, "two", "blue")
    async with viewing(bus) as view:
        assert dict(view.items()) == {space("one"): "red", space("two"): "blue"}
        await announce(bus, "one", "blue")
        await eventually(lambda: view.get(space("one")) == "blue")
        assert sorted(view.refs("blue")) == [space("one"), space("two")]
        assert view.refs("red") == []
        await announce(bus, "two", "blue", "DELETED")
        await eventually(lambda: view.get(space("two")) is None)
        assert view.refs("blue") == [space("one")]


async def test_a_view_extracts_anew_and_keeps_its_entries_meanwhile(bus: Bus) -> None:
    prefix, known = "", list[dict[ObjectRef, str]]()
    await announce(bus, "one", "red")
    view: View[str] = View(
        bus,
        NAMESPACES.id,
        lambda ref, found: f"{prefix}{color_of(ref, found)}",
        changed=lambda: known.append(dict(view.items())),
    )
    async with running(view.run()):
        await soon(view.complete.wait())
        prefix = "dark "
        view.read_again()
        await eventually(lambda: view.get(space("one")) == "dark red")
        await announce(bus, "two", "blue")
        await eventually(lambda: view.get(space("two")) == "dark blue")
    assert all(space("one") in entries for entries in known)


async def test_views_of_a_kind_share_a_consumer_but_no_end(bus: Bus) -> None:
    await announce(bus, "one", "red")
    created: list[Msg] = []
    await bus.client.listen("$JS.EVENT.ADVISORY.CONSUMER.CREATED.OBJECTS.*", created.append)
    first, second = (View(bus, NAMESPACES.id, color_of) for _ in range(2))
    async with running(second.run()):
        async with running(first.run()):
            await soon(first.complete.wait())
            await soon(second.complete.wait())
        await announce(bus, "one", "blue")
        await eventually(lambda: second.get(space("one")) == "blue")
        assert first.get(space("one")) == "red"
        async with viewing(bus) as late:
            assert late.get(space("one")) == "blue"
            await eventually(lambda: len(created) >= 2)
    assert len(created) == 2  # one for the first two, and one for the last


async def test_a_view_runs_in_the_context_of_its_own_task(bus: Bus) -> None:
    holder: ContextVar[str] = ContextVar("holder")
    found: set[tuple[str, str]] = set()

    async def follow(name: str) -> None:
        holder.set(name)
        await View(bus, NAMESPACES.id, color_of, changed=lambda: found.add((name, holder.get()))).run()

    async with running(follow("one"), follow("two")):
        await eventually(lambda: len(found) >= 2)
    assert found == {("one", "one"), ("two", "two")}


async def test_a_view_that_fails_stops_no_other(bus: Bus) -> None:
    failed = asyncio.Event()

    def fail() -> None:
        failed.set()
        raise ValueError("a bug")

    async with running(View(bus, NAMESPACES.id, color_of, changed=fail).run()), viewing(bus) as view:
        await soon(failed.wait())
        await announce(bus, "one", "red")
        await eventually(lambda: view.get(space("one")) == "red")


async def test_a_view_keeps_the_last_state_of_too_large_objects(bus: Bus) -> None:
    changed = asyncio.Event()
    await announce(bus, "one", "red")
    async with viewing(bus, changed.set) as view:
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


@on_three("nats")
async def test_a_view_starts_afresh_after_a_gap(nats: NatsServer, nats_bus: Bus) -> None:
    await announce(nats_bus, "old", "red")
    async with viewing(nats_bus) as view:
        await emptied(nats, nats_bus)
        await announce(nats_bus, "new", "blue")
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
async def test_the_events_of_a_forgotten_object_are_kept(bus: Bus) -> None:
    name, deleted = key("web"), EventIntent(type="Normal", reason="Deleted", note="Deleted")
    first = await intents.report(bus, name, StatusIntent(uid="1", patch={"state": "Ready"}), 0)
    await intents.forget(bus, name, "1")
    with pytest.raises(Superseded):
        await intents.report(bus, name, StatusIntent(uid="1", patch={"state": "Gone"}), first)
    await intents.report(bus, name, StatusIntent(uid="1", patch={}, events=(deleted,)), first)
    found = (await intents.last(bus, name)).intent
    assert found
    assert found.events == (deleted,)


async def test_the_report_of_a_recreated_object_is_kept(bus: Bus) -> None:
    newer = StatusIntent(uid="newer", patch={})
    await intents.report(bus, key("web"), newer, 0)
    await intents.forget(bus, key("web"), "older")
    assert (await intents.last(bus, key("web"))).intent == newer
    await intents.forget(bus, key("web"), "newer")
    assert (await intents.last(bus, key("web"))).intent is None


async def test_a_view_forgets_a_cluster_that_has_left(bus: Bus) -> None:
    changed, all_of_it = asyncio.Event(), subjects.listed("runtime", NAMESPACES.id)
    await announce(bus, "one", "red")
    await bus.publish(all_of_it, b"")
    async with viewing(bus, changed.set) as view:
        assert (view.refs("red"), view.listed) == ([space("one")], {"runtime"})
        changed.clear()
        await bus.publish(all_of_it, b"", {OPERATION: "DELETED"})
        await soon(changed.wait())
        assert (list(view.items()), view.refs("red"), view.listed) == ([], [], set())


async def test_a_view_reports_only_changes_of_its_values(bus: Bus) -> None:
    changes: list[int] = []
    await announce(bus, "one", "red")
    async with viewing(bus, lambda: changes.append(1)) as view:
        before = len(changes)
        await announce(bus, "one", "red")
        await announce(bus, "one", "blue")
        await eventually(lambda: view.get(space("one")) == "blue")
    assert len(changes) == before + 1
