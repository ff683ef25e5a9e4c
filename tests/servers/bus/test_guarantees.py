"""What the server has confirmed is so for everybody at once, also where there are several servers."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from bus import streams, subjects
from bus.messages import Wish
from bus.transport import consumers
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, Occupied, WrongSequence, connected
from bus.transport.pull import Pull
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from tests.servers.bus.handlers import POOL, Story, Telling, key
from tests.servers.bus.test_pool import at_rest
from tests.support.rules import rule
from tests.support.running import eventually, running
from windowbox.errors import TransientError, Unreachable
from windowbox.settings.bussettings import Access


@rule("V-4")
async def test_a_wish_right_after_a_run_needs_no_sweep(bus: Bus) -> None:
    """Each object is wished for as soon as its last run has ended, when its item is about to be settled."""
    story, queue, rounds = Story(), Queue(bus, POOL), 40
    names = [f"web-{number}" for number in range(8)]

    async def wish_again_and_again(name: str) -> None:
        for turn in range(1, rounds + 1):
            await queue.wish(key(name), Wish(reason=str(turn)))
            await story.until_so(lambda turn=turn: said(story, name, turn), f"{name} {turn}")  # type: ignore[misc]
            await asyncio.sleep(random.uniform(0, 0.01))

    async with running(Pool(bus, POOL, Telling(bus, story.add)).run()):
        await asyncio.gather(*map(wish_again_and_again, names))
        await eventually(lambda: at_rest(bus))


def said(story: Story, name: str, turn: int) -> bool:
    """Whether a run for this wish has ended."""
    return any(s.short == f"end {name}" and s.reason == str(turn) for s in story.all)


async def test_an_item_that_was_settled_makes_room_for_the_next(bus: Bus) -> None:
    queue = Queue(bus, POOL)
    pull = Pull(bus, queue.item_consumer(10), 1)
    await queue.enqueue(key("web"))
    turns = 0
    async for [delivery] in pull.deliveries():
        await delivery.ack()
        await queue.removed(delivery.sequence)
        # Occupied would mean that it waits already.
        await bus.publish(subjects.item(POOL, key("web")), b"")
        pull.done()
        if (turns := turns + 1) == 50:
            break


async def test_what_was_stored_is_read_at_once_by_everybody(bus: Bus, nats_url: str) -> None:
    subject = subjects.intent(key("web"))
    async with contextlib.AsyncExitStack() as stack:
        urls = nats_url.split(",")
        readers = [await stack.enter_async_context(connected(Access(url))) for url in urls]
        for _ in range(60):
            sequence = await bus.publish(subject, b"{}")
            assert sequence
            found = await asyncio.gather(*(reader.last(streams.INTENTS, subject) for reader in readers))
            assert [last and last.sequence for last in found] == [sequence] * len(urls)
            found = await asyncio.gather(*(reader.at(streams.INTENTS, sequence) for reader in readers))
            assert [last and last.sequence for last in found] == [sequence] * len(urls)


async def test_what_was_deleted_is_read_no_more(bus: Bus) -> None:
    subject = subjects.intent(key("web"))
    for _ in range(30):
        sequence = await bus.publish(subject, b"{}")
        assert sequence
        assert await bus.delete(streams.INTENTS, sequence) in (True, False)
        assert await bus.last(streams.INTENTS, subject) is None
        assert not await bus.delete(streams.INTENTS, sequence)


async def test_a_reading_misses_nothing_that_was_stored_before(bus: Bus) -> None:
    filters = [subjects.intent(">")]
    for number in range(25):
        for filler in range(20):
            subject = subjects.intent(key(f"web-{number}-{filler}"))
            await bus.publish(subject, b"{}")
        found = {stored.subject async for stored in consumers.snapshot(bus, streams.INTENTS, filters)}
        assert subject in found
        assert len(found) == 20 * (number + 1)


async def test_a_bucket_that_was_just_read_knows_what_was_written_before(bus: Bus) -> None:
    writer = Bucket(bus, streams.EDGES)
    for number in range(10):
        name = subjects.of_address(f"10.0.0.{number}")
        await writer.put(name, b"x", 0)
        reader = Bucket(bus, streams.EDGES)
        async with running(reader.run()):
            await reader.catch_up()
            assert name in reader.entries


@rule("V-8")
async def test_one_of_two_concurrent_writers_gets_a_conflict(bus: Bus) -> None:
    subject = subjects.intent(key("web"))
    expected = 0
    for _ in range(30):
        answers = await asyncio.gather(
            *(bus.publish(subject, b"%d" % who, expect_last=expected) for who in range(4)),
            return_exceptions=True,
        )
        won = [answer for answer in answers if isinstance(answer, int)]
        assert len(won) == 1
        assert [type(a) for a in answers if not isinstance(a, int)] == [WrongSequence] * 3
        expected = won[0]


async def test_a_full_stream_is_no_item_that_waits_already(bus: Bus) -> None:
    config = (await bus.api(f"STREAM.INFO.{streams.WORK}"))["config"]
    await bus.api(f"STREAM.UPDATE.{streams.WORK}", {**config, "max_bytes": 1})
    with pytest.raises(TransientError, match="maximum bytes exceeded") as refused:
        await bus.publish(subjects.item(POOL, key("web")), b"")
    assert not isinstance(refused.value, Occupied)


async def test_a_message_that_must_not_be_deleted_is_not_gone(bus: Bus) -> None:
    await bus.api("STREAM.CREATE.kept", {"name": "kept", "subjects": ["kept"], "deny_delete": True})
    sequence = await bus.publish("kept", b"")
    assert sequence
    with pytest.raises(Unreachable, match="not permitted"):
        await bus.delete("kept", sequence)


async def test_a_stream_that_is_not_there_holds_no_answer(bus: Bus) -> None:
    with contextlib.suppress(Unreachable):
        await bus.delete("nowhere", 1)
        raise AssertionError("it was taken for gone")
