"""A cluster that answers slowly has only a part of a pool's slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bus import streams, subjects
from bus.messages import Reason, Result, RunRecord, Wish
from bus.outcomes import Done, Outcome
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from tests.servers.bus.handlers import POOL
from tests.support.running import eventually, running
from windowbox.clients.kubernetes import bulkhead
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef

SLOTS = 16
SHARE = 4


class Hanging:
    """Runs of the cluster, or namespace, `slow` never end; others do at once."""

    def __init__(self) -> None:
        self.begun = 0

    async def handle(self, item: Item) -> Outcome:
        ref = subjects.ref(item.key)
        if "slow" in (ref.cluster, ref.namespace):
            self.begun += 1
            await asyncio.Event().wait()
        return Done()

    async def quarantine(self, item: Item) -> None: ...


async def _wish(bus: Bus, cluster: str, namespace: str, name: str) -> None:
    key = subjects.key(ObjectRef(cluster, SERVICES.id, namespace, name))
    await Queue(bus, POOL).wish(key, Wish(reason=Reason.EVENT))


async def _ended(bus: Bus) -> dict[str, RunRecord]:
    """The last record of each object, by its name."""
    stored = consumers.snapshot(bus, streams.JOURNAL, [f"run.{POOL}.>"])
    found = [RunRecord.model_validate_json(one.data) async for one in stored]
    return {subjects.ref(one.key).name: one for one in found}


@pytest.fixture(autouse=True)
def _no_introduction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_INTRODUCTION", 0.01)


@pytest.mark.parametrize(
    ("slow", "quick", "sharing"),
    [
        pytest.param(("slow", "shop"), (RUNTIME, "shop"), lambda ref: ref.cluster, id="runtime-cluster"),
        pytest.param(("slow", "shop"), ("another", "shop"), lambda ref: ref.cluster, id="another-cluster"),
        pytest.param((RUNTIME, "slow"), (RUNTIME, "shop"), lambda ref: ref.namespace, id="namespaces"),
    ],
)
async def test_a_hanging_cluster_leaves_slots_to_others(
    bus: Bus, slow: tuple[str, str], quick: tuple[str, str], sharing: Callable[[ObjectRef], str]
) -> None:
    hanging = Hanging()
    async with running(Pool(bus, POOL, hanging, concurrency=SLOTS, sharing=sharing).run()):
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
    assert hanging.begun == SHARE


async def test_a_run_that_is_stopped_is_insisted_on(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_BUDGET", 0.01)
    async with running(Pool(bus, POOL, Hanging(), sharing=lambda ref: ref.cluster).run()):
        await _wish(bus, "slow", "shop", "web")

        async def stopped() -> bool:
            return "web" in await _ended(bus)

        await eventually(stopped)
        key = subjects.key(ObjectRef("slow", SERVICES.id, "shop", "web"))
        later = await bus.last(streams.LATER, subjects.later(POOL, key))
    assert (await _ended(bus))["web"].note == "stopped, because runs of slow take too long"
    assert later
    assert Wish.decoded(later.data).insist
