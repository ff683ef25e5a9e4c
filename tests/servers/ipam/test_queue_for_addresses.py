"""When all addresses are in use: who waits, who is next, and who is woken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bus.transport.connection import Bus
from tests.servers.ipam.stores import BOTH, allocate, allocated, opened, range_of, service, settled
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.entries import Waiter
from workers.loadbalancer.ipam.results import Allocated, Queued, Rejected
from workers.loadbalancer.ipam.store import AddressStore

TWO = "10.0.0.16/31"


async def waits(store: AddressStore, name: str) -> int:
    """The place in the line of a Service that has to wait."""
    answer = await allocate(store, name)
    assert isinstance(answer, Queued), answer
    assert answer.reason == "AddressRangeUsedUp"
    assert "all 2 IPv4 addresses" in answer.note
    return answer.place


async def full(store: AddressStore) -> None:
    await allocated(store, "first")
    await allocated(store, "second")


async def gone(store: AddressStore, name: str) -> list[ObjectRef]:
    """Who is woken when a Service goes."""
    return list((await store.release(service(name))).wake)


async def test_who_finds_no_address_has_a_place_in_the_line(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        assert [await waits(store, name) for name in ("third", "fourth", "fifth")] == [1, 2, 3]
        assert [await waits(store, name) for name in ("fifth", "third", "fourth")] == [3, 1, 2]


async def test_the_next_address_serves_the_longest_waiting(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        for name in ("third", "fourth", "fifth"):
            await waits(store, name)
        assert await gone(store, "first") == [service("third")]
        assert await waits(store, "newcomer") == 4
        assert await waits(store, "fourth") == 2
        await allocated(store, "third")
        assert await waits(store, "fourth") == 1
        assert await gone(store, "second") == [service("fourth")]


async def test_as_many_are_woken_as_can_be_served(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        for name in ("third", "fourth", "fifth"):
            await waits(store, name)
        await gone(store, "first")
        assert await gone(store, "second") == [service("third"), service("fourth")]
        await allocated(store, "fourth")
        await allocated(store, "third")
        assert await waits(store, "fifth") == 1


async def test_a_waiter_that_leaves_passes_its_turn_on(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        await waits(store, "third")
        await waits(store, "fourth")
        assert await gone(store, "first") == [service("third")]
        assert await gone(store, "third") == [service("fourth")]
        await allocated(store, "fourth")
        assert store.index.waiters.keys() <= {service("fourth")}


async def test_those_who_were_not_woken_are_found(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        await waits(store, "third")
        await waits(store, "fourth")
        assert store.servable() == []
        await store.release(service("first"))
        await store.bucket.catch_up()
        assert store.servable() == [service("third")]


async def test_a_served_waiter_leaves_the_queue_after_a_restart(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        await waits(store, "third")
        await store.bucket.catch_up()
        waiter = store.index.waiters[service("third")]
        await store.release(service("first"))
        await allocated(store, "third")
        await store.join_queue(service("third"), waiter)
        await store.bucket.catch_up()
        assert await waits(store, "fourth") == 1
        await allocated(store, "third")
        await store.bucket.catch_up()
        assert list(store.index.waiters) == [service("fourth")]


async def test_who_becomes_something_else_leaves_the_line(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        await waits(store, "third")
        await waits(store, "fourth")
        await store.keep(service("third"), "third", until=1000.0)
        assert await waits(store, "fourth") == 1


async def test_who_cannot_be_served_lets_those_behind_it_pass(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        await waits(store, "third")
        await waits(store, "fourth")
        await gone(store, "first")
        assert (await store.step_back(service("third"))).wake == (service("fourth"),)
        await allocated(store, "fourth")
        assert (await store.step_back(service("second"))).wake == ()


async def test_a_port_that_was_anothers_is_had_once_the_other_goes(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await allocated(store, "web", share="word", ports=["80/TCP"])
        await allocated(store, "api", share="word", ports=["443/TCP"])
        assert isinstance(await allocate(store, "web", share="word", ports=["80/TCP", "443/TCP"]), Rejected)
        assert store.servable() == []
        assert await gone(store, "api") == [service("web")]
        await allocated(store, "web", share="word", ports=["80/TCP", "443/TCP"])
        await store.bucket.catch_up()
        assert store.index.waiters == {}


@pytest.mark.parametrize(
    "asked", [pytest.param({"requested": ["10.0.0.16"]}, id="that-address"), pytest.param({}, id="any")]
)
async def test_who_could_share_an_address_by_now_is_found(bus: Bus, asked: dict[str, Any]) -> None:
    async with settled(bus, TWO) as store:
        await allocated(store, "web", requested=["10.0.0.16"], share="word", ports=["80/TCP"])
        await allocated(store, "second")
        assert not isinstance(
            await allocate(store, "api", share="word", ports=["80/TCP"], **asked), Allocated
        )
        assert store.servable() == []
        await allocated(store, "web", requested=["10.0.0.16"], share="word", ports=["8080/TCP"])
        await store.bucket.catch_up()
        assert store.servable() == [service("api")]
        assert await allocated(store, "api", share="word", ports=["80/TCP"], **asked) == ["10.0.0.16"]


async def test_an_address_given_back_by_asking_for_less_wakes_the_next(bus: Bus) -> None:
    async with settled(bus, TWO, "fd00::10/127") as store:
        await allocated(store, "first", BOTH)
        await allocated(store, "second", BOTH)
        await waits(store, "third")
        answer = await allocate(store, "first", ["IPv6"])
        assert isinstance(answer, Allocated)
        assert answer.wake == (service("third"),)


async def test_who_shares_need_not_wait(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await allocated(store, "first", share="word", ports=["80/TCP"])
        await allocated(store, "second")
        await waits(store, "third")
        assert await allocated(store, "fourth", share="word", ports=["443/TCP"]) == await allocated(
            store, "first", share="word", ports=["80/TCP"]
        )


async def test_a_fixed_address_is_not_a_way_past_the_line(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        await waits(store, "third")
        (freed,) = (await store.release(service("first"))).addresses
        assert isinstance(await allocate(store, "newcomer", requested=[freed]), Queued)
        assert await allocated(store, "third") == [freed]


async def test_each_range_has_its_own_line(bus: Bus) -> None:
    ranges = range_of(TWO, clusters=("runtime",)), range_of("10.0.1.16/31", clusters=("shoot",))
    async with opened(bus, *ranges) as store:
        await addressclaims.adopt_all(store, [])
        await full(store)
        await waits(store, "third")
        for name in ("first", "second"):
            await allocated(store, name, cluster="shoot")
        answer = await allocate(store, "third", cluster="shoot")
        assert isinstance(answer, Queued)
        assert answer.place == 1
        assert (await store.release(service("first", "shoot"))).wake == (service("third", "shoot"),)


async def test_many_who_wait_are_all_served_in_the_end(bus: Bus) -> None:
    async with settled(bus, TWO) as store, opened(bus, range_of(TWO)) as other:
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
        await asyncio.gather(*(live(name, (store, other)[at % 2]) for at, name in enumerate(names)))
        assert sorted(served) == sorted(names)


@pytest.mark.parametrize("meanwhile", ["the-book-becomes-complete", "an-address-is-given-back"])
async def test_what_is_missed_while_joining_the_line_is_not_waited_for(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    complete = meanwhile == "the-book-becomes-complete"
    async with opened(bus, range_of(TWO)) as store, opened(bus, range_of(TWO)) as another:
        if not complete:
            await addressclaims.adopt_all(store, [])
            await full(store)
        joining = store.join_queue

        async def late(ref: ObjectRef, waiter: Waiter) -> None:
            if complete:
                await addressclaims.adopt_all(another, [])
            else:
                assert (await another.release(service("first"))).wake == ()
            await joining(ref, waiter)

        monkeypatch.setattr(store, "join_queue", late)
        assert isinstance(await allocate(store, "third"), Allocated)


async def test_who_prefers_both_families_is_content_with_one(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/28", "fd00::10/128") as store:
        await allocated(store, "first", ["IPv6"])
        answer = await allocate(store, "web", BOTH, content=True)
        assert isinstance(answer, Allocated)
        assert list(answer.addresses) == ["IPv4"]
        assert isinstance(await allocate(store, "must", BOTH), Queued)
        assert await gone(store, "first") == [service("web")]
        assert len(await allocated(store, "web", BOTH, content=True)) == 2
        await store.bucket.catch_up()
        assert store.index.waiters.keys() == {service("must")}


async def test_the_note_stays_the_same_while_the_line_moves(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await full(store)
        for name in ("third", "fourth", "fifth"):
            await waits(store, name)
        before = await allocate(store, "fifth")
        await store.release(service("third"))
        after = await allocate(store, "fifth")
        assert isinstance(before, Queued)
        assert isinstance(after, Queued)
        assert (before.note, before.place, after.place) == (after.note, 3, 2)


async def test_who_would_share_and_cannot_is_told_why(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/28") as store:
        one = await allocate(store, "one", share="word")
        assert isinstance(one, Allocated)
        assert one.notice == ""
        for _ in range(2):  # also when it has one already
            two = await allocate(store, "two", share="word")
            assert isinstance(two, Allocated)
            where = one.addresses["IPv4"]
            assert two.notice == (
                f"it has an address of its own: port 80/TCP of {where} belongs to Service shop/one; to share "
                "that address, use other ports"
            )
        three = await allocate(store, "three", share="word", ports=["81/TCP"])
        assert isinstance(three, Allocated)
        assert three.notice == ""
