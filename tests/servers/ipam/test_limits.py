"""What one cluster can take at most: addresses, and places in the queue. Who was refused is tried again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Collection

import pytest

from bus import streams, subjects
from bus.messages import OPERATION, PREDECESSOR, UID, VERSION
from bus.transport.connection import Bus
from bus.views import View
from bus.workqueue.queue import Queue
from tests.servers.ipam.stores import allocate, allocated, opened, range_of, service, settled
from tests.support.running import eventually, running
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES, ObjectRef
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.entries import Waiter
from workers.loadbalancer.ipam.results import Queued, Rejected
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.upkeep import Asking, Waking

TWO = "10.0.0.16/31"


async def crowded(store: AddressStore, cluster: str = "shoot") -> None:
    """All addresses are in use, and a hundred Services of the cluster wait for one."""
    await allocated(store, "first")
    await allocated(store, "second")
    waiter = Waiter(uid="1", since=1.0, families=("IPv4",))
    for number in range(100):
        await store.join_queue(service(f"waits-{number}", cluster), waiter)
    await store.bucket.catch_up()


async def test_beyond_a_hundred_that_wait_services_are_refused(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await crowded(store)
        refused = await allocate(store, "late", cluster="shoot")
        assert isinstance(refused, Rejected)
        assert refused.reason == "AddressQueueFull"
        assert refused.note == (
            "all 2 IPv4 addresses of its range are in use, and as many Services of this cluster wait as may "
            "at once (100); it waits, too, once there are fewer: delete Services that are no longer needed, "
            "or widen loadbalancer.ranges in windowbox's settings"
        )
        assert service("late", "shoot") not in store.index.waiters
        assert isinstance(await allocate(store, "waits-7", uid="1", cluster="shoot"), Queued)
        assert isinstance(await allocate(store, "late", cluster="neighbour"), Queued)
        await store.step_back(service("waits-7", "shoot"))
        assert isinstance(await allocate(store, "late", cluster="shoot"), Queued)


async def test_a_full_queue_leaves_other_reasons_as_they_are(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await crowded(store)
        [where] = await allocated(store, "first")
        taken = await allocate(store, "late", cluster="shoot", requested=[where])
        assert isinstance(taken, Rejected)
        assert taken.reason == "AddressTaken"
        assert service("late", "shoot") not in store.index.waiters


async def test_a_full_queue_does_not_grow_while_addresses_are_restored(bus: Bus) -> None:
    async with opened(bus, range_of(TWO)) as store:
        waiter = Waiter(uid="1", since=1.0, families=("IPv4",))
        for number in range(100):
            await store.join_queue(service(f"waits-{number}", "shoot"), waiter)
        answer = await allocate(store, "late", cluster="shoot")
        assert isinstance(answer, Queued)
        assert answer.reason == "AddressBookIncomplete"
        await store.bucket.catch_up()
        assert len(store.index.waiters) == 100


async def test_by_default_a_shoot_leaves_half_to_others(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/30") as store:
        for name in ("one", "two"):
            await allocated(store, name, cluster="greedy")
        refused = await allocate(store, "three", cluster="greedy")
        assert isinstance(refused, Rejected)
        assert refused.note == (
            "Services of this cluster have as many IPv4 addresses as a cluster may have (2): delete a "
            "Service that is no longer needed, or set a higher loadbalancer.quota in windowbox's settings"
        )
        for name in ("one", "two"):
            await allocated(store, name)  # of the runtime cluster


async def announce(bus: Bus, ref: ObjectRef) -> None:
    """A Service of type LoadBalancer, as a watcher mirrors it."""
    headers = {OPERATION: "ADDED", UID: ref.name, VERSION: "1", PREDECESSOR: "0"}
    await bus.publish(subjects.seen(ref), json.dumps({"metadata": {"name": ref.name}}).encode(), headers)


def asking(ref: ObjectRef, _: Object) -> Asking:
    return Asking(ref.cluster, ("IPv4",))


@contextlib.asynccontextmanager
async def waking(bus: Bus, store: AddressStore, services: Collection[ObjectRef]) -> AsyncIterator[None]:
    """Whoever holds the lease of the addresses requeues Services."""
    for ref in services:
        await announce(bus, ref)
    view, changed = View(bus, SERVICES.id, asking, lambda one: one.cluster), asyncio.Event()
    end = store.on_change(changed.set)
    try:
        async with running(view.run(), Waking(store, Queue(bus, "loadbalancer"), view).run(changed)):
            yield
    finally:
        end()


async def requeued(bus: Bus) -> set[str]:
    """The names of Services that have a wish."""
    info = await bus.api(f"STREAM.INFO.{streams.TRIGGERS}", {"subjects_filter": ">"})
    return {subject.rsplit(".", 1)[-1] for subject in info["state"].get("subjects") or {}}


async def all_seen(bus: Bus, store: AddressStore) -> set[str]:
    """The names of Services that have been requeued once all changes until now have been looked at."""
    free = Waiter(uid="1", since=1.0, addresses=("192.0.2.1",))
    for _ in range(2):  # of what is requeued at once, the sign may come first
        sign = f"sign-{uuid.uuid4().hex}"
        await store.join_queue(service(sign, "elsewhere"), free)

        async def is_seen(sign: str = sign) -> bool:
            return sign in await requeued(bus)

        await eventually(is_seen)
        await store.leave_queue(service(sign, "elsewhere"))
    return {name for name in await requeued(bus) if not name.startswith("sign")}


async def test_refused_services_take_turns_when_one_of_their_cluster_leaves(bus: Bus) -> None:
    late = [service(f"late-{number}", "shoot") for number in range(20)]
    async with settled(bus, TWO) as store:
        await crowded(store)
        async with waking(bus, store, [*late, service("first"), service("waits-0", "shoot")]):
            assert await all_seen(bus, store) == set()
            for expected in (9, 18, 20):
                await store.step_back(service("waits-1", "shoot"))
                assert len(await all_seen(bus, store)) == expected
                waiter = Waiter(uid="1", since=2.0, families=("IPv4",))
                await store.join_queue(service("waits-1", "shoot"), waiter)
                found = await all_seen(bus, store)
                assert len(found) == expected
                assert found <= {ref.name for ref in late}


async def test_beyond_the_quota_a_service_is_requeued_at_a_release(bus: Bus) -> None:
    refs = [service(f"{name}-{cluster}", cluster) for cluster in ("greedy", "other") for name in ("a", "b")]
    async with opened(bus, range_of(TWO), quota=1) as store:
        await addressclaims.adopt_all(store, [])
        for cluster in ("greedy", "other"):
            await allocated(store, f"a-{cluster}", cluster=cluster)
            assert isinstance(await allocate(store, f"b-{cluster}", cluster=cluster), Rejected)
        async with waking(bus, store, refs):
            assert await all_seen(bus, store) == set()
            await store.release(service("a-greedy", "greedy"))
            # The first of them is still there, and asks again, too.
            assert await all_seen(bus, store) == {"a-greedy", "b-greedy"}


@pytest.mark.parametrize(
    ("quota", "expected"),
    [pytest.param(1, set(), id="the-same-quota"), pytest.param(2, {"two"}, id="a-higher-quota")],
)
async def test_a_higher_quota_is_used_by_the_next_holder_of_the_lease(
    bus: Bus, quota: int, expected: set[str]
) -> None:
    async with opened(bus, range_of(TWO), quota=1) as before:
        await addressclaims.adopt_all(before, [])
        await allocated(before, "one", cluster="shoot")
        assert isinstance(await allocate(before, "two", cluster="shoot"), Rejected)
    refs = [service("one", "shoot"), service("two", "shoot")]
    async with opened(bus, range_of(TWO), quota=quota) as store, waking(bus, store, refs):
        assert await all_seen(bus, store) == expected
