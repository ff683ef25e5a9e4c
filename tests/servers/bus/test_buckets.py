"""Buckets: compare-and-set, and knowing what stands in them, whatever becomes of the server's memory."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, WrongSequence, connected
from sandbox import processes
from tests.support.natsserver import NatsServer, ensured, made_anew
from tests.support.running import eventually, running, soon
from windowbox.settings.bussettings import Access

KEY = subjects.of_address("10.0.0.1")
OTHER = subjects.of_address("fd00::1")


class Told:
    """What a bucket tells those who listen."""

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
    told = Told(bucket)
    async with running(bucket.run()):
        await soon(bucket.complete.wait())
        yield bucket, told


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", "::"])
def test_an_address_is_a_key_and_back(address: str) -> None:
    key = subjects.of_address(address)
    assert key.count(".") == 1
    assert subjects.address(key) == address
    assert subjects.waiting(key) is None


async def test_only_who_has_seen_the_last_value_may_write_the_next(bus: Bus) -> None:
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


async def test_changes_are_told_and_entries_known(bus: Bus) -> None:
    writer = Bucket(bus, streams.ADDRESSES)
    before = await writer.put(KEY, b"before", 0)
    async with following(bus) as (bucket, told):
        await writer.put(OTHER, b"after", None)
        await writer.delete(KEY, before)
        await soon(bucket.catch_up())
        assert {key: entry.value for key, entry in bucket.entries.items()} == {OTHER: b"after"}
        assert told.changes == [(KEY, b"before"), (OTHER, b"after"), (KEY, None)]
        assert told.regresses == 0


async def test_after_catching_up_all_that_others_wrote_before_is_known(bus: Bus) -> None:
    writer = Bucket(bus, streams.ADDRESSES)
    async with following(bus) as (bucket, _):
        for number in range(200):
            key = subjects.of_address(f"10.0.1.{number}")
            await writer.put(key, b"x", 0)
            await soon(bucket.catch_up())
            assert key in bucket.entries


async def test_a_purge_is_noticed_though_the_server_tells_nobody(bus: Bus) -> None:
    async with following(bus) as (bucket, told):
        await bucket.put(KEY, b"one", 0)
        await soon(bucket.catch_up())
        await bus.purge(f"KV_{streams.ADDRESSES}", subjects.entry(streams.ADDRESSES, ">"))
        await soon(bucket.catch_up())
        assert bucket.entries == {}
        assert told.changes == [(KEY, b"one"), (KEY, None)]
        assert told.regresses == 1


async def test_a_purge_of_what_was_not_written_again_is_noticed(bus: Bus) -> None:
    async with following(bus) as (bucket, _):
        await bucket.put(KEY, b"one", 0)
        await bucket.put(OTHER, b"two", 0)
        await bucket.put(KEY, b"three", None)
        await soon(bucket.catch_up())
        await bus.purge(f"KV_{streams.ADDRESSES}", subjects.entry(streams.ADDRESSES, OTHER))
        await soon(bucket.catch_up())
        assert list(bucket.entries) == [KEY]


async def test_a_bucket_that_was_deleted_and_made_again_is_noticed(bus: Bus) -> None:
    async with following(bus) as (bucket, told):
        await bucket.put(KEY, b"one", 0)
        await soon(bucket.catch_up())
        await bus.api(f"STREAM.DELETE.KV_{streams.ADDRESSES}")
        await ensured(bus)
        await bucket.put(OTHER, b"two", 0)
        await soon(bucket.catch_up())
        assert list(bucket.entries) == [OTHER]
        assert told.regresses == 1


async def test_a_lost_connection_alone_is_no_regress(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
        async with following(bus) as (bucket, told):
            await bucket.put(KEY, b"one", 0)
            await soon(bucket.catch_up())
            nats.stop()
            await eventually(lambda: not bucket.complete.is_set())
            nats.start()
            await soon(bucket.complete.wait())
            await soon(bucket.catch_up())
            assert told.changes == [(KEY, b"one")]
            assert told.regresses == 0


async def test_a_store_that_was_wiped_is_noticed(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
        async with following(bus) as (bucket, told):
            await bucket.put(KEY, b"one", 0)
            await soon(bucket.catch_up())
            nats.wipe()
            await eventually(lambda: not bucket.complete.is_set())
            nats.start()
            await eventually(lambda: made_anew(bus))
            await soon(bucket.complete.wait())
            assert bucket.entries == {}
            assert told.regresses == 1


async def added(bucket: Bucket) -> None:
    await bucket.put(OTHER, b"lost", 0)


async def rewritten(bucket: Bucket) -> None:
    await bucket.put(KEY, b"lost", None)


async def deleted(bucket: Bucket) -> None:
    await bucket.delete(KEY, None)


async def come_and_gone(bucket: Bucket) -> None:
    await bucket.delete(OTHER, await bucket.put(OTHER, b"lost", 0))


@pytest.mark.parametrize("overtaken", [False, True], ids=["as-it-was", "and-written-to-since"])
@pytest.mark.parametrize("change", [added, rewritten, deleted])
async def test_a_store_put_back_to_an_older_copy_is_noticed(
    one_server: NatsServer, tmp_path: Path, change: Callable[[Bucket], Awaitable[None]], overtaken: bool
) -> None:
    assert await regresses(one_server, tmp_path, change, overtaken) == 1


async def test_a_rolled_back_store_is_noticed_after_deletions(one_server: NatsServer, tmp_path: Path) -> None:
    assert await regresses(one_server, tmp_path, come_and_gone, overtaken=False) == 1


async def regresses(
    one_server: NatsServer, tmp_path: Path, change: Callable[[Bucket], Awaitable[None]], overtaken: bool
) -> int:
    """How often a reader is told of a loss when the store is put back to before another's change."""
    async with connected(Access(one_server.url)) as bus:
        await eventually(lambda: made_anew(bus))
        async with following(bus) as (bucket, told):
            await bucket.put(KEY, b"one", 0)
            await soon(bucket.catch_up())
            one_server.stop()
            await eventually(lambda: not bucket.complete.is_set())
            shutil.copytree(tmp_path / "nats", tmp_path / "copy")
            one_server.start()
            await soon(bucket.complete.wait())
            await change(Bucket(bus, streams.ADDRESSES))
            await soon(bucket.catch_up())
            one_server.wipe()
            await eventually(lambda: not bucket.complete.is_set())
            shutil.copytree(tmp_path / "copy", tmp_path / "nats")
            if overtaken:
                await _write_behind_its_back(one_server)
            one_server.start()
            await soon(bucket.complete.wait())
            assert bucket.entries[KEY].value == b"one"
            return told.regresses


async def _write_behind_its_back(one_server: NatsServer) -> None:
    """Let others write to the store on another port, until it has come further than it was before."""
    port = one_server.port
    one_server.port = processes.free_port()
    one_server.url = f"nats://127.0.0.1:{one_server.port}"
    one_server.start()
    try:
        async with connected(Access(one_server.url)) as bus:
            writer = Bucket(bus, streams.ADDRESSES)
            for number in range(10):
                await writer.put(subjects.of_address(f"10.0.2.{number}"), b"x", 0)
    finally:
        one_server.stop()
        one_server.port, one_server.url = port, f"nats://127.0.0.1:{port}"


async def test_many_wait_for_the_same_change(bus: Bus) -> None:
    writer = Bucket(bus, streams.ADDRESSES)
    async with following(bus) as (bucket, _):
        await asyncio.gather(
            *(writer.put(subjects.of_address(f"10.0.3.{n}"), b"x", 0) for n in range(50)),
            *(bucket.catch_up() for _ in range(50)),
        )
        await soon(bucket.catch_up())
        assert len(bucket.entries) == 50
