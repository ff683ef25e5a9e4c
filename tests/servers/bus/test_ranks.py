"""Of the processes that share a consumer, one gets messages first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from bus import streams, subjects
from bus.leases import presence
from bus.messages import Reason, Result, RunRecord, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished
from bus.transport import consumers
from bus.transport.connection import ApiError, Bus, connected
from bus.transport.consumers import Consumer, Delivery
from bus.transport.pull import Pull
from bus.workqueue import pool as pools
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.ranks import Rank
from bus.workqueue.routing import run_due
from tests.servers.bus.handlers import EVENT, POOL, Doing, key
from tests.support.cases import cases
from tests.support.natsserver import NatsServer
from tests.support.running import eventually, running
from windowbox.clients.kubernetes import bulkhead
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.bussettings import Access

FIRST, SECOND, THIRD = 0, 3, 7


class Taker:
    """Takes messages at a rank, and settles them at once, or keeps them until `settle`."""

    def __init__(self, bus: Bus, rank: int, *, keeps: bool = False) -> None:
        self.pull = Pull(bus, consumer_of(bus), 128, lambda: rank)
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


def consumer_of(bus: Bus) -> Consumer:
    return Queue(bus, POOL).item_consumer(10)


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
async def taking(bus: Bus, *takers: Taker) -> AsyncIterator[None]:
    """While these take messages, each by two requests."""
    async with running(*(taker.run() for taker in takers)):
        await eventually(lambda: asking(bus, consumer_of(bus), 2 * len(takers)))
        yield


async def test_the_first_gets_everything_while_it_has_room(one_bus: Bus) -> None:
    takers, names = [Taker(one_bus, rank) for rank in (SECOND, FIRST, THIRD)], iter(range(1000))

    async def settled() -> bool:
        return not (await one_bus.api("STREAM.INFO.WORK", repeat=True))["state"]["messages"]

    async with taking(one_bus, *takers):
        for _ in range(40):
            await enqueue(one_bus, names, 1)
            await eventually(settled)
    assert [len(taker.taken) for taker in takers] == [0, 40, 0]


async def test_the_second_gets_messages_beyond_the_firsts_room(one_bus: Bus) -> None:
    names = iter(range(1000))
    first, second = (Taker(one_bus, rank, keeps=True) for rank in (FIRST, SECOND))
    async with taking(one_bus, second, first):
        await enqueue(one_bus, names, 128)
        await eventually(lambda: len(first.taken) + len(second.taken) == 128)
        assert (len(first.taken), len(second.taken)) == (64, 64)
        await enqueue(one_bus, names, 64)  # both have enough to do: it is shared
        await eventually(lambda: len(first.taken) + len(second.taken) == 192)
        await first.settle()
        await second.settle()


async def test_the_second_takes_over_at_once_from_a_killed_first(
    one_bus: Bus, one_server: NatsServer
) -> None:
    second = Taker(one_bus, SECOND)

    async def nobody_answers() -> bool:
        return not await presence.processes(one_bus)

    async with taking(one_bus, second):
        async with (
            connected(Access(one_server.url)) as other,
            presence.answering(other, lambda: {"role": "work", "process": "host/1"}),
            running(Taker(other, FIRST).run()),
        ):
            await eventually(lambda: asking(one_bus, consumer_of(one_bus), 4))
            await other.client.close()  # as the kernel does for a process that was killed
            await eventually(nobody_answers)  # the server knows it, too
        await enqueue(one_bus, iter(range(10)), 10)
        await eventually(lambda: len(second.taken) == 10)
    assert second.redelivered == 0


@pytest.mark.parametrize("before", [False, True], ids=["unranked-before", "ranked-before"])
async def test_a_rank_makes_and_keeps_its_consumer_ranked(bus: Bus, before: bool) -> None:
    consumer = consumer_of(bus)
    await consumers.ensure(bus, consumer, ranked=before)
    await consumers.ensure(bus, consumer, ranked=True)
    info = await bus.api(f"CONSUMER.INFO.{consumer.stream}.{consumer.name}", repeat=True)
    assert info["config"]["priority_policy"] == "prioritized"
    await consumers.ensure(bus, consumer._replace(ack_wait=20), ranked=True)
    info = await bus.api(f"CONSUMER.INFO.{consumer.stream}.{consumer.name}", repeat=True)
    assert info["config"]["ack_wait"] == 20_000_000_000


async def test_a_worker_whose_calls_fail_steps_aside(one_bus: Bus) -> None:
    queue, rank, failed, succeeded = Queue(one_bus, POOL), Rank(one_bus), [], []

    async def fail(item: Item) -> Outcome:
        failed.append(item.key)
        return Failed("no answer", RequeueAfter(Wish(reason=Reason.RETRY), 0.01))

    async def succeed(item: Item) -> Outcome:
        succeeded.append(item.key)
        return Done()

    first = Pool(one_bus, POOL, Doing(fail), rank=rank)
    second = Pool(one_bus, POOL, Doing(succeed), rank=Rank(one_bus))
    with rank.first():
        async with running(first.run(), second.run(), run_due(one_bus, queue)):
            await eventually(lambda: asking(one_bus, queue.item_consumer(10), 2))
            for number in range(30):
                await queue.wish(key(f"web-{number}"), EVENT)
            await eventually(lambda: len(succeeded) == 30)
    # What it had asked for before it stepped aside is given to it.
    assert 16 <= len(failed) <= 16 + 64 + 30


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


SLOTS = 16
SHARE = 4


async def hang(item: Item) -> Outcome:
    """Never end in the cluster, or namespace, `slow`; elsewhere at once."""
    ref = subjects.ref(item.key)
    if "slow" in (ref.cluster, ref.namespace):
        await asyncio.Event().wait()
    return Done()


async def _wish(bus: Bus, cluster: str, namespace: str, name: str) -> None:
    key = subjects.key(ObjectRef(cluster, SERVICES.id, namespace, name))
    await Queue(bus, POOL).wish(key, EVENT)


async def _ended(bus: Bus) -> dict[str, RunRecord]:
    """The last record of each object, by its name."""
    stored = consumers.snapshot(bus, streams.JOURNAL, [f"run.{POOL}.>"])
    found = [RunRecord.model_validate_json(one.data) async for one in stored]
    return {subjects.ref(one.key).name: one for one in found}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_INTRODUCTION", 0.01)
    monkeypatch.setattr(pools, "_GRACE", 0.5)  # what hangs does not end in eight seconds either


@cases(
    "slow quick sharing",
    ("runtime-cluster", ("slow", "shop"), (RUNTIME, "shop"), lambda ref: ref.cluster),
    ("another-cluster", ("slow", "shop"), ("another", "shop"), lambda ref: ref.cluster),
    ("namespaces", (RUNTIME, "slow"), (RUNTIME, "shop"), lambda ref: ref.namespace),
)
async def test_a_hanging_cluster_leaves_slots_to_others(
    bus: Bus, slow: tuple[str, str], quick: tuple[str, str], sharing: Callable[[ObjectRef], str]
) -> None:
    async with running(Pool(bus, POOL, Doing(hang), concurrency=SLOTS, sharing=sharing).run()):
        for number in range(20):
            await _wish(bus, *slow, f"s{number}")
        await _wish(bus, *quick, "web")

        async def all_but_the_share_have_ended() -> bool:
            return len(await _ended(bus)) == 20 - SHARE + 1

        await eventually(all_but_the_share_have_ended)
        ended = await _ended(bus)
    assert ended.pop("web").outcome is Result.SUCCEEDED
    assert {one.outcome for one in ended.values()} == {Result.WAITING}
    assert {one.note.partition(":")[0] for one in ended.values()} == {"waiting for a turn"}


async def test_a_run_that_is_stopped_is_insisted_on(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "BUDGET", 0.01)
    async with running(Pool(bus, POOL, Doing(hang), sharing=lambda ref: ref.cluster).run()):
        await _wish(bus, "slow", "shop", "web")

        async def stopped() -> bool:
            return "web" in await _ended(bus)

        await eventually(stopped)
        key = subjects.key(ObjectRef("slow", SERVICES.id, "shop", "web"))
        later = await bus.last(streams.LATER, subjects.later(POOL, key))
    assert (await _ended(bus))["web"].note == "stopped, because runs of slow take too long"
    assert later
    assert Wish.decoded(later.data).insist
