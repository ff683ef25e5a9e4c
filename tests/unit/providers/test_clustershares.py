"""A cluster that answers slowly has only a part of a pool's slots."""

from __future__ import annotations

import asyncio

import pytest

from bus import subjects
from bus.messages import Reason, Result, Wish
from bus.workqueue.clustershares import ClusterShares
from bus.workqueue.pool import DeliveryHold, Item, Outcome
from windowbox.clients.kubernetes import bulkhead
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef


def item(cluster: str, name: str) -> Item:
    key = subjects.key(ObjectRef(cluster, SERVICES.id, "shop", name))
    return Item(key, Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(10))


class Hanging:
    """Runs at the cluster `slow` never end; others do at once."""

    def __init__(self) -> None:
        self.begun = 0

    async def handle(self, item: Item) -> Outcome:
        if subjects.ref(item.key).cluster == "slow":
            self.begun += 1
            await asyncio.Event().wait()
        return Outcome(Result.SUCCEEDED)

    async def quarantine(self, item: Item) -> None: ...


@pytest.fixture(autouse=True)
def _no_introduction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_INTRODUCTION", 0.01)


@pytest.mark.parametrize("cluster", [RUNTIME, "another"])
async def test_a_hanging_cluster_leaves_slots_to_others(cluster: str) -> None:
    hanging = Hanging()
    shares = ClusterShares(hanging, 16)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(shares.handle(item("slow", f"s{n}"))) for n in range(4)]
        await asyncio.sleep(0)  # they run up to where they hang
        refused = await asyncio.gather(*(shares.handle(item("slow", f"t{n}")) for n in range(50)))
        assert (await shares.handle(item(cluster, "web"))).result == Result.SUCCEEDED
        for task in tasks:
            task.cancel()
    assert hanging.begun == 4
    assert {(one.result, one.requeue.wish if one.requeue else None) for one in refused} == {
        (Result.WAITING, Wish(reason=Reason.EVENT))
    }


async def test_a_run_that_is_stopped_is_insisted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_BUDGET", 0.01)
    outcome = await ClusterShares(Hanging(), 16).handle(item("slow", "web"))
    assert outcome.note == "stopped, because runs of slow take too long"
    assert outcome.requeue
    assert outcome.requeue.wish.insist


async def test_items_of_one_cluster_may_be_shared_by_their_namespaces() -> None:
    class HangingShoot(Hanging):
        async def handle(self, item: Item) -> Outcome:
            if item.key.endswith(".slow.web"):
                self.begun += 1
                await asyncio.Event().wait()
            return Outcome(Result.SUCCEEDED)

    def machine(namespace: str) -> Item:
        key = subjects.key(ObjectRef(RUNTIME, SERVICES.id, namespace, "web"))
        return Item(key, Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(10))

    hanging = HangingShoot()
    shares = ClusterShares(hanging, 16, lambda ref: ref.namespace)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(shares.handle(machine("slow"))) for _ in range(4)]
        await asyncio.sleep(0)  # they run up to where they hang
        assert (await shares.handle(machine("slow"))).result == Result.WAITING
        assert (await shares.handle(machine("shop"))).result == Result.SUCCEEDED
        for task in tasks:
            task.cancel()
    assert hanging.begun == 4
