"""Of the processes that share a consumer, one is given messages first."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from bus import streams
from bus.leases import presence
from bus.messages import Reason, Result, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished
from bus.transport import consumers
from bus.transport.connection import ApiError, Bus, connected
from bus.transport.consumers import Consumer, Delivery
from bus.transport.pull import Pull
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.ranks import Rank
from bus.workqueue.routing import run_due
from tests.servers.bus.handlers import POOL, key
from tests.support.natsserver import NatsServer
from tests.support.running import eventually, running
from windowbox.settings.bussettings import Access

FIRST, SECOND, THIRD = 0, 3, 7


class Taker:
    """Takes messages at a rank, and settles them at once, or keeps them until `settle`."""

    def __init__(self, bus: Bus, consumer: Consumer, rank: int | None, *, keeps: bool = False) -> None:
        self.pull = Pull(bus, consumer, 128, None if rank is None else lambda: rank)
        self.keeps = keeps
        self.taken: list[str] = []
        self.redelivered = 0
        self._kept: list[Delivery] = []

    async def run(self) -> None:
        async for batch in self.pull.deliveries():
            for delivery in batch:
                self.taken.append(delivery.subject)
                self.redelivered += delivery.number > 1
                self._kept.append(delivery)
            if not self.keeps:
                await self.settle()

    async def settle(self) -> None:
        kept, self._kept = self._kept, []
        for delivery in kept:
            await delivery.ack()
            self.pull.done()


@pytest.fixture
def consumer(bus: Bus) -> Consumer:
    return Queue(bus, POOL).item_consumer(10)


@pytest.fixture
async def one_bus(one_server: NatsServer) -> AsyncIterator[Bus]:
    async with connected(Access(one_server.url)) as bus:
        await streams.ensure(bus)
        yield bus


@pytest.fixture
def consumer_of_one(one_bus: Bus) -> Consumer:
    return Queue(one_bus, POOL).item_consumer(10)


async def enqueue(bus: Bus, names: Iterator[int], count: int) -> None:
    for _ in range(count):
        await Queue(bus, POOL).enqueue(key(f"web-{next(names)}"))


async def asking(bus: Bus, consumer: Consumer, requests: int) -> bool:
    """Whether this many requests wait at the server."""
    try:
        info = await bus.api(f"CONSUMER.INFO.{consumer.stream}.{consumer.name}", repeat=True)
    except ApiError:
        return False  # not made yet
    return int(info["num_waiting"]) >= requests


@contextlib.asynccontextmanager
async def taking(bus: Bus, consumer: Consumer, *takers: Taker) -> AsyncIterator[None]:
    """While these take messages, each by two requests."""
    async with running(*(taker.run() for taker in takers)):
        await eventually(lambda: asking(bus, consumer, 2 * len(takers)))
        yield


async def test_the_first_is_given_everything_as_long_as_it_has_little_to_do(
    one_bus: Bus, consumer_of_one: Consumer
) -> None:
    bus, names = one_bus, iter(range(1000))
    takers = [Taker(bus, consumer_of_one, rank) for rank in (SECOND, FIRST, THIRD)]
    async with taking(bus, consumer_of_one, *takers):
        for _ in range(40):
            await enqueue(bus, names, 1)
            await eventually(lambda: settled(bus))
    assert [len(taker.taken) for taker in takers] == [0, 40, 0]


async def test_the_next_is_given_what_the_first_has_no_hands_for(
    one_bus: Bus, consumer_of_one: Consumer
) -> None:
    bus, names = one_bus, iter(range(1000))
    first, second = (Taker(bus, consumer_of_one, rank, keeps=True) for rank in (FIRST, SECOND))
    async with taking(bus, consumer_of_one, second, first):
        await enqueue(bus, names, 128)
        await eventually(lambda: took(128, first, second))
        assert (len(first.taken), len(second.taken)) == (64, 64)
        await enqueue(bus, names, 64)  # both have enough to do: it is shared
        await eventually(lambda: took(192, first, second))
        await first.settle()
        await second.settle()


async def test_whoever_is_next_goes_on_at_once_when_the_first_is_gone(
    one_bus: Bus, consumer_of_one: Consumer, one_server: NatsServer
) -> None:
    names = iter(range(1000))
    second = Taker(one_bus, consumer_of_one, SECOND)
    async with taking(one_bus, consumer_of_one, second):
        async with (
            connected(Access(one_server.url)) as other,
            presence.answering(other, lambda: {"role": "work", "process": "host/1"}),
            running(Taker(other, consumer_of_one, FIRST).run()),
        ):
            await eventually(lambda: asking(one_bus, consumer_of_one, 4))
            await other.client.close()  # as the kernel does for a process that was killed
            await eventually(lambda: nobody_answers(one_bus))  # the server knows it, too
        await enqueue(one_bus, names, 10)
        await eventually(lambda: took(10, second))
    assert second.redelivered == 0


async def test_a_consumer_without_ranks_becomes_ranked_when_a_process_with_a_rank_starts(
    bus: Bus, consumer: Consumer
) -> None:
    await consumers.ensure(bus, consumer)
    await consumers.ensure(bus, consumer, ranked=True)
    assert await ranked(bus, consumer)


async def test_a_consumer_that_is_ranked_stays_so_when_another_process_starts(
    bus: Bus, consumer: Consumer
) -> None:
    await consumers.ensure(bus, consumer, ranked=True)
    await consumers.ensure(bus, consumer, ranked=True)
    assert await ranked(bus, consumer)
    await consumers.ensure(bus, consumer._replace(ack_wait=20), ranked=True)
    info = await bus.api(f"CONSUMER.INFO.{consumer.stream}.{consumer.name}", repeat=True)
    assert info["config"]["ack_wait"] == 20_000_000_000


async def ranked(bus: Bus, consumer: Consumer) -> bool:
    info = await bus.api(f"CONSUMER.INFO.{consumer.stream}.{consumer.name}", repeat=True)
    return bool(info["config"].get("priority_policy") == "prioritized")


async def nobody_answers(bus: Bus) -> bool:
    return not await presence.processes(bus)


async def settled(bus: Bus) -> bool:
    return not (await bus.api("STREAM.INFO.WORK", repeat=True))["state"]["messages"]


async def took(count: int, *takers: Taker) -> bool:
    return sum(len(taker.taken) for taker in takers) == count


class Calling:
    """Reconciles by a call to a server, which `way` leads to."""

    def __init__(self, way: int) -> None:
        self._way = way
        self.results = Counter[Result]()

    async def handle(self, item: Item) -> Outcome:
        outcome: Outcome = Done()
        if not await self._is_answered():
            outcome = Failed("no answer", RequeueAfter(Wish(reason=Reason.RETRY), 0.01))
        self.results[outcome.result] += 1
        return outcome

    async def _is_answered(self) -> bool:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._way)
            with contextlib.closing(writer):
                return bool(await reader.read(1))
        return False

    async def quarantine(self, item: Item) -> None:
        """Never."""


async def test_a_worker_whose_way_is_cut_lets_others_come_first(one_bus: Bus) -> None:
    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"!")
        writer.close()

    queue, rank = Queue(one_bus, POOL), Rank(one_bus)
    async with serving(refuse) as nowhere, serving(answer) as there:
        cut_off, other = Calling(nowhere), Calling(there)
        first = Pool(one_bus, POOL, cut_off, rank=rank)
        second = Pool(one_bus, POOL, other, rank=Rank(one_bus))
        with rank.first():
            async with running(first.run(), second.run(), run_due(one_bus, queue)):
                await eventually(lambda: asking(one_bus, queue.item_consumer(10), 2))
                for number in range(30):
                    await queue.wish(key(f"web-{number}"), Wish(reason=Reason.EVENT))

                await eventually(lambda: other.results[Result.SUCCEEDED] == 30)
    # What it had asked for before it stepped aside is given to it.
    assert 16 <= cut_off.results[Result.FAILED] <= 16 + 64 + 30


async def test_a_worker_steps_aside_until_a_run_succeeds(one_bus: Bus) -> None:
    rank = Rank(one_bus)
    with rank.first():
        failed, waiting = Failed("no answer"), Unfinished("no answer yet")
        outcomes: list[Outcome] = [*[failed] * 15, Done(), *[waiting] * 15]
        for outcome in outcomes:
            rank.note(outcome)
        assert rank.number == 0
        rank.note(Ignored())  # nothing was reached, so nothing is known
        rank.note(waiting)
        assert rank.number == 8
        rank.note(Done())
        assert rank.number == 0


@contextlib.asynccontextmanager
async def serving(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]) -> AsyncIterator[int]:
    """A server on a port of its own."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
