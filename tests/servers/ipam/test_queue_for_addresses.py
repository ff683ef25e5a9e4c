"""When addresses run out: who waits, who is next, who is woken, and what one cluster can take at most."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus import streams, subjects
from bus.messages import OPERATION, PREDECESSOR, UID, VERSION
from bus.transport.connection import Bus, connected
from bus.views import View
from bus.workqueue.queue import Queue
from tests.servers.ipam.stores import (
    BOTH,
    TWO,
    allocate,
    allocated,
    opened,
    queued,
    range_of,
    rejected,
    service,
    settled,
)
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.bussettings import Access
from workers.loadbalancer.ipam import addressclaims, holdings, index
from workers.loadbalancer.ipam.entries import Waiter
from workers.loadbalancer.ipam.results import Allocated, Queued, Released
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.upkeep import Asking, Waking

WAITER = Waiter(uid="1", since=1.0, families=("IPv4",))


async def waits(store: AddressStore, *names: str) -> list[int]:
    """The places in the line of Services that have to wait."""
    answers = [await queued(store, name) for name in names]
    assert {answer.reason for answer in answers} == {"AddressRangeUsedUp"}
    assert all("all 2 IPv4 addresses" in answer.note for answer in answers)
    return [await place(store, name) for name in names]


async def place(store: AddressStore, name: str, cluster: str = RUNTIME) -> int:
    """The place of a waiting Service in the queue; 1 is the next."""
    await store.bucket.catch_up()
    ref = service(name, cluster)
    return store.index.ahead(ref, "IPv4", store.index.waiters[ref].since) + 1


async def gone(store: AddressStore, name: str) -> list[str]:
    """Who is woken when a Service goes."""
    return [ref.name for ref in (await store.release(service(name))).wake]


async def test_a_service_without_address_has_a_queue_place(full: AddressStore) -> None:
    assert await waits(full, "third", "fourth", "fifth") == [1, 2, 3]
    assert await waits(full, "fifth", "third", "fourth") == [3, 1, 2]


async def test_the_next_address_serves_the_longest_waiting(full: AddressStore) -> None:
    await waits(full, "third", "fourth", "fifth")
    assert await gone(full, "first") == ["third"]
    assert await waits(full, "newcomer", "fourth") == [4, 2]
    await allocated(full, "third")
    assert await waits(full, "fourth") == [1]
    assert await gone(full, "second") == ["fourth"]


async def test_servable_waiters_are_found_without_a_wake(full: AddressStore) -> None:
    await waits(full, "third", "fourth")
    assert full.servable() == []
    await full.release(service("first"))
    await full.bucket.catch_up()
    assert full.servable() == [service("third")]


async def test_a_served_waiter_leaves_the_queue_after_a_restart(full: AddressStore) -> None:
    await waits(full, "third")
    await full.bucket.catch_up()
    waiter = full.index.waiters[service("third")]
    await full.release(service("first"))
    await allocated(full, "third")
    await full.join_queue(service("third"), waiter)
    await full.bucket.catch_up()
    assert await waits(full, "fourth") == [1]
    await allocated(full, "third")
    await full.bucket.catch_up()
    assert list(full.index.waiters) == [service("fourth")]


async def test_a_service_of_another_type_leaves_the_queue(full: AddressStore) -> None:
    await waits(full, "third", "fourth")
    await full.keep(service("third"), "third", until=1000.0)
    assert await waits(full, "fourth") == [1]


async def test_an_unservable_waiter_lets_the_next_pass(full: AddressStore) -> None:
    await waits(full, "third", "fourth")
    await gone(full, "first")
    assert (await full.step_back(service("third"))).wake == (service("fourth"),)
    await allocated(full, "fourth")
    assert (await full.step_back(service("second"))).wake == ()


async def test_a_released_port_can_be_added(two: AddressStore) -> None:
    both: dict[str, Any] = {"share": "word", "ports": ["80/TCP", "443/TCP"]}
    await allocated(two, "web", share="word", ports=["80/TCP"])
    await allocated(two, "api", share="word", ports=["443/TCP"])
    await rejected(two, "web", **both)
    assert two.servable() == []
    assert await gone(two, "api") == ["web"]
    await allocated(two, "web", **both)
    await two.bucket.catch_up()
    assert two.index.waiters == {}


@cases("asked", ("that-address", {"requested": ["10.0.0.16"]}), ("any", {}))
async def test_a_waiter_that_can_share_is_servable(two: AddressStore, asked: dict[str, Any]) -> None:
    asked |= {"share": "word", "ports": ["80/TCP"]}
    web: dict[str, Any] = {"requested": ["10.0.0.16"], "share": "word"}
    await allocated(two, "web", **web, ports=["80/TCP"])
    await allocated(two, "second")
    assert not isinstance(await allocate(two, "api", **asked), Allocated)
    assert two.servable() == []
    await allocated(two, "web", **web, ports=["8080/TCP"])
    await two.bucket.catch_up()
    assert two.servable() == [service("api")]
    assert await allocated(two, "api", **asked) == ["10.0.0.16"]


async def test_a_dropped_family_wakes_the_next_waiter(bus: Bus) -> None:
    async with settled(bus, TWO, "fd00::10/127") as store:
        await allocated(store, "first", BOTH)
        await allocated(store, "second", BOTH)
        await waits(store, "third")
        answer = await allocate(store, "first", ["IPv6"])
        assert isinstance(answer, Allocated)
        assert answer.wake == (service("third"),)


async def test_a_sharing_service_need_not_wait(two: AddressStore) -> None:
    first = await allocated(two, "first", share="word", ports=["80/TCP"])
    await allocated(two, "second")
    await waits(two, "third")
    assert await allocated(two, "fourth", share="word", ports=["443/TCP"]) == first


async def test_a_requested_address_does_not_skip_the_queue(full: AddressStore) -> None:
    await waits(full, "third")
    (freed,) = (await full.release(service("first"))).addresses
    await queued(full, "newcomer", requested=[freed])
    assert await allocated(full, "third") == [freed]


async def test_each_range_has_its_own_queue(bus: Bus) -> None:
    ranges = range_of(TWO, clusters=("runtime",)), range_of("10.0.1.16/31", clusters=("shoot",))
    async with opened(bus, *ranges) as store:
        await addressclaims.adopt_all(store, [])
        for cluster in ("runtime", "shoot"):
            for name in ("first", "second"):
                await allocated(store, name, cluster=cluster)
            await queued(store, "third", cluster=cluster)
            assert await place(store, "third", cluster) == 1
        assert (await store.release(service("first", "shoot"))).wake == (service("third", "shoot"),)


async def test_all_waiting_services_are_served_in_the_end(bus: Bus, two: AddressStore) -> None:
    async with opened(bus, TWO) as other:
        names = [f"web-{number}" for number in range(30)]
        served: list[str] = []

        async def live(name: str, books: AddressStore) -> None:
            while not isinstance(await allocate(books, name), Allocated):
                await asyncio.wait_for(woken[name].wait(), 30)
                woken[name].clear()
            served.append(name)
            for ref in (await books.release(service(name))).wake:
                woken[ref.name].set()

        woken = {name: asyncio.Event() for name in names}
        await asyncio.gather(*(live(name, (two, other)[at % 2]) for at, name in enumerate(names)))
        assert sorted(served) == sorted(names)


@pytest.mark.parametrize("meanwhile", ["the-book-becomes-complete", "an-address-is-given-back"])
async def test_a_change_while_joining_the_queue_is_noticed(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    complete = meanwhile == "the-book-becomes-complete"
    async with opened(bus, TWO) as store, opened(bus, TWO) as another:
        if not complete:
            await addressclaims.adopt_all(store, [])
            await allocated(store, "first")
            await allocated(store, "second")
        joining = store.join_queue

        async def late(ref: ObjectRef, waiter: Waiter) -> None:
            if complete:
                await addressclaims.adopt_all(another, [])
            else:
                assert await gone(another, "first") == []
            await joining(ref, waiter)

        monkeypatch.setattr(store, "join_queue", late)
        await allocated(store, "third")


async def test_prefer_dual_stack_accepts_one_family(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/28", "fd00::10/128") as store:
        await allocated(store, "first", ["IPv6"])
        answer = await allocate(store, "web", BOTH, content=True)
        assert isinstance(answer, Allocated)
        assert list(answer.addresses) == ["IPv4"]
        await queued(store, "must", BOTH)
        assert await gone(store, "first") == ["web"]
        assert len(await allocated(store, "web", BOTH, content=True)) == 2
        await store.bucket.catch_up()
        assert store.index.waiters.keys() == {service("must")}


async def test_the_note_stays_the_same_while_the_queue_moves(full: AddressStore) -> None:
    await waits(full, "third", "fourth", "fifth")
    before = await queued(full, "fifth")
    await full.release(service("third"))
    assert await place(full, "fifth") == 2
    assert (await queued(full, "fifth")).note == before.note


# What one cluster can take at most.


async def crowd(store: AddressStore) -> None:
    """A hundred Services of a cluster wait for an address."""
    for number in range(100):
        await store.join_queue(service(f"waits-{number}", "shoot"), WAITER)
    await store.bucket.catch_up()


async def test_beyond_a_hundred_that_wait_services_are_refused(full: AddressStore) -> None:
    await crowd(full)
    refused = await rejected(full, "late", cluster="shoot")
    assert refused.reason == "AddressQueueFull"
    assert refused.note == (
        "all 2 IPv4 addresses of its range are in use, and as many Services of this cluster wait as may "
        "at once (100); it waits, too, once there are fewer: delete Services that are no longer needed, "
        "or widen loadbalancer.ranges in windowbox's settings"
    )
    assert service("late", "shoot") not in full.index.waiters
    await queued(full, "waits-7", uid="1", cluster="shoot")
    await queued(full, "late", cluster="neighbour")
    await full.step_back(service("waits-7", "shoot"))
    await queued(full, "late", cluster="shoot")


async def test_a_full_queue_leaves_other_reasons_as_they_are(full: AddressStore) -> None:
    await crowd(full)
    where = await allocated(full, "first")
    assert (await rejected(full, "late", cluster="shoot", requested=where)).reason == "AddressTaken"
    assert service("late", "shoot") not in full.index.waiters


async def test_a_full_queue_does_not_grow_while_addresses_are_restored(bus: Bus) -> None:
    async with opened(bus, TWO) as store:
        await crowd(store)
        assert (await queued(store, "late", cluster="shoot")).reason == "AddressBookIncomplete"
        await store.bucket.catch_up()
        assert len(store.index.waiters) == 100


async def test_by_default_a_shoot_leaves_half_to_others(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/30") as store:
        for name in ("one", "two"):
            await allocated(store, name, cluster="greedy")
        assert (await rejected(store, "three", cluster="greedy")).note == (
            "Services of this cluster have as many IPv4 addresses as a cluster may have (2): delete a "
            "Service that is no longer needed, or set a higher loadbalancer.quota in windowbox's settings"
        )
        for name in ("one", "two"):
            await allocated(store, name)  # of the runtime cluster


async def test_at_its_quota_a_cluster_waits_for_no_address_of_others(bus: Bus) -> None:
    async with settled(bus, TWO, quota=1) as store:
        theirs, ours = await allocated(store, "theirs"), await allocated(store, "ours", cluster="greedy")
        refused = await rejected(store, "more", cluster="greedy", requested=theirs)
        assert refused.reason == "AddressQuotaExceeded"
        # Once its cluster releases this one, the quota has room for it.
        assert (await rejected(store, "next", cluster="greedy", requested=ours)).reason == "AddressTaken"
        await store.bucket.catch_up()
        assert store.index.waiters.keys() == {service("next", "greedy")}


async def test_one_cluster_does_not_fill_the_store(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MOST_BYTES", 4096)
    async with settled(bus, "fd00::/64") as store:
        answers = [await allocate(store, f"web-{n}", ["IPv6"], cluster="greedy") for n in range(20)]
        given = [one for one in answers if isinstance(one, Allocated)]
        assert answers[: len(given)] == given
        assert 0 < len(given) < 20
        assert (await rejected(store, "late", ["IPv6"], cluster="greedy")).reason == "AddressStoreFull"
        assert await allocated(store, "web-0", ["IPv6"], cluster="greedy", ports=["53/UDP"])
        assert await allocated(store, "web", ["IPv6"], cluster="neighbour")
        assert await allocated(store, "web", ["IPv6"])


async def test_deleted_names_count_as_long_as_the_bus_keeps_them(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MOST_BYTES", 4096)
    async with settled(bus, "fd00::/64") as store:
        refused = 0
        for number in range(60):
            answer = await allocate(store, f"web-{number}", ["IPv6"], cluster="greedy")
            refused += not isinstance(answer, Allocated)
            await store.release(service(f"web-{number}", "greedy"))
            await store.bucket.catch_up()
        assert refused > 20
        assert await allocated(store, "web", ["IPv6"], cluster="neighbour")
        monkeypatch.setattr(holdings, "_KEPT", 0.0)
        assert await allocated(store, "web", ["IPv6"], cluster="greedy")


async def announce(bus: Bus, ref: ObjectRef) -> None:
    """A Service of type LoadBalancer, as a watcher mirrors it."""
    headers = {OPERATION: "ADDED", UID: ref.name, VERSION: "1", PREDECESSOR: "0"}
    await bus.publish(subjects.seen(ref), json.dumps({"metadata": {"name": ref.name}}).encode(), headers)


@contextlib.asynccontextmanager
async def waking(bus: Bus, store: AddressStore, services: Collection[ObjectRef]) -> AsyncIterator[None]:
    """Whoever holds the lease of the addresses requeues Services."""
    for ref in services:
        await announce(bus, ref)
    view: View[Asking] = View(
        bus, SERVICES.id, lambda ref, _: Asking(ref.cluster, ("IPv4",)), lambda one: one.cluster
    )
    end = store.on_change((changed := asyncio.Event()).set)
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


async def test_refused_services_take_turns_when_one_of_their_cluster_leaves(
    bus: Bus, full: AddressStore
) -> None:
    late = [service(f"late-{number}", "shoot") for number in range(20)]
    await crowd(full)
    async with waking(bus, full, [*late, service("first"), service("waits-0", "shoot")]):
        assert await all_seen(bus, full) == set()
        for expected in (9, 18, 20):
            await full.step_back(service("waits-1", "shoot"))
            assert len(await all_seen(bus, full)) == expected
            await full.join_queue(service("waits-1", "shoot"), WAITER)
            found = await all_seen(bus, full)
            assert len(found) == expected
            assert found <= {ref.name for ref in late}


async def test_beyond_the_quota_a_service_is_requeued_at_a_release(bus: Bus) -> None:
    refs = [service(f"{name}-{cluster}", cluster) for cluster in ("greedy", "other") for name in ("a", "b")]
    async with settled(bus, TWO, quota=1) as store:
        for cluster in ("greedy", "other"):
            await allocated(store, f"a-{cluster}", cluster=cluster)
            await rejected(store, f"b-{cluster}", cluster=cluster)
        async with waking(bus, store, refs):
            assert await all_seen(bus, store) == set()
            await store.release(service("a-greedy", "greedy"))
            # The first of them is still there, and asks again, too.
            assert await all_seen(bus, store) == {"a-greedy", "b-greedy"}


@cases("quota expected", ("the-same-quota", 1, set()), ("a-higher-quota", 2, {"two"}))
async def test_a_higher_quota_is_used_by_the_next_holder_of_the_lease(
    bus: Bus, quota: int, expected: set[str]
) -> None:
    async with settled(bus, TWO, quota=1) as before:
        await allocated(before, "one", cluster="shoot")
        await rejected(before, "two", cluster="shoot")
    refs = [service("one", "shoot"), service("two", "shoot")]
    async with opened(bus, TWO, quota=quota) as store, waking(bus, store, refs):
        assert await all_seen(bus, store) == expected


# Whatever Services ask, in whatever order: no address has two owners, and nobody waits beside a free one.


PREFIX = "10.0.0.16/30"
ROOM = 4
NAMES = ("a", "b", "c", "d", "e", "f", "g")

REQUESTS = st.tuples(
    st.just("take"),
    st.sampled_from(NAMES),
    st.fixed_dictionaries(
        {"share": st.sampled_from([None, None, "word"]), "port": st.sampled_from([80, 443])}
    ),
)
NOTHING: dict[str, object] = {}
LEAVING = st.tuples(st.sampled_from(["release", "keep", "expire"]), st.sampled_from(NAMES), st.just(NOTHING))
STEPS = st.lists(st.one_of(REQUESTS, LEAVING), min_size=5, max_size=40)


@dataclass
class Model:
    """The invariants of the index's answers."""

    had: dict[str, str] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    asked: dict[str, dict[str, object]] = field(default_factory=dict)

    def alone(self, name: str) -> bool:
        return list(self.had.values()).count(self.had[name]) == 1


@rule("LB-11-3")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_order_of_requests_and_releases_keeps_the_invariants(nats_url: str, steps: list[object]) -> None:
    asyncio.run(_simulated(nats_url, cast("list[tuple[str, str, dict[str, object]]]", steps)))


async def _simulated(url: str, steps: Iterable[tuple[str, str, dict[str, object]]]) -> None:
    async with connected(Access(url)) as bus:
        await streams.ensure(bus)
        async with settled(bus, PREFIX) as one, opened(bus, PREFIX) as two:
            await two.bucket.catch_up()
            try:
                await _play((one, two), steps)
            finally:
                await bus.api(f"STREAM.PURGE.KV_{streams.ADDRESSES}")


async def _play(
    books: tuple[AddressStore, AddressStore], steps: Iterable[tuple[str, str, dict[str, object]]]
) -> None:
    model = Model()
    for number, (what, name, asked) in enumerate(steps):
        store = books[number % 2]
        if what == "take":
            woken = await _take(store, model, name, asked)
        elif name in model.asked:
            woken = await _leave(store, model, what, name)
        else:
            continue
        for other in woken:
            await _take(store, model, other, model.asked[other])
        await _check(store, model)


async def _take(store: AddressStore, model: Model, name: str, asked: dict[str, object]) -> list[str]:
    model.asked[name] = asked
    before = dict(model.had)
    answer = await allocate(store, name, share=asked["share"], ports=[f"{asked['port']}/TCP"])
    if isinstance(answer, Allocated):
        address = answer.addresses["IPv4"]
        if name in before and model.alone(name):
            assert address == before[name], "moved without a reason"
        model.had[name] = address
        model.waiting.discard(name)
        model.kept.discard(name)
    elif isinstance(answer, Queued) and name not in model.had:
        model.waiting.add(name)
    return [ref.name for ref in answer.wake]


async def _leave(store: AddressStore, model: Model, what: str, name: str) -> list[str]:
    released = Released()
    if what == "keep":
        released = await soon(store.keep(service(name), name, until=1000.0))
        model.waiting.discard(name)
        model.kept |= {name} & model.had.keys()
    elif what == "expire" and name in model.kept:
        await store.bucket.catch_up()
        released = await soon(store.release_expired(service(name), now=1000.0))
        model.kept.discard(name)
        assert released.addresses == (model.had.pop(name),)
    elif what == "release":
        released = await soon(store.release(service(name)))
        model.waiting.discard(name)
        model.kept.discard(name)
        had = model.had.pop(name, None)
        assert released.addresses == ((had,) if had else ())
    return [ref.name for ref in released.wake]


async def _check(store: AddressStore, model: Model) -> None:
    await store.bucket.catch_up()
    found = {holder.name: address for address, holder in store.holders()}
    assert found == model.had
    taken = Counter(found.values())
    assert len(taken) <= ROOM
    for address in taken:
        can_share = [h for a, h in store.holders() if a == address]
        ports = [port for holder in can_share for port in holder.ports]
        assert len(ports) == len(set(ports))
        assert len(can_share) == 1 or {h.share for h in can_share} == {"word"}
    waiting = {ref.name for ref in store.index.waiters}
    assert model.waiting <= waiting | model.had.keys()
    assert not model.waiting or len(taken) == ROOM, "somebody waits beside a free address"
