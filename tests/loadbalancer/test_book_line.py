"""When all addresses are in use: who waits, who is next, and who is woken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bus.connection import Bus
from tests.loadbalancer.books import BOTH, opened, range_of, service, settled, take, taken
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.answers import Refused, Taken, Waiting
from workers.loadbalancer.book import Book
from workers.loadbalancer.holders import Waiter

TWO = "10.0.0.16/31"


async def waits(book: Book, name: str) -> int:
    """The place in the line of a Service that has to wait."""
    answer = await take(book, name)
    assert isinstance(answer, Waiting), answer
    assert answer.reason == "AddressRangeUsedUp"
    assert "all 2 IPv4 addresses" in answer.note
    return answer.place


async def full(book: Book) -> None:
    await taken(book, "first")
    await taken(book, "second")


async def gone(book: Book, name: str) -> list[ObjectRef]:
    """Who is woken when a Service goes."""
    return list((await book.release(service(name))).wake)


async def test_who_finds_no_address_has_a_place_in_the_line(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        assert [await waits(book, name) for name in ("third", "fourth", "fifth")] == [1, 2, 3]
        assert [await waits(book, name) for name in ("fifth", "third", "fourth")] == [3, 1, 2]


async def test_the_next_address_serves_the_longest_waiting(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        for name in ("third", "fourth", "fifth"):
            await waits(book, name)
        assert await gone(book, "first") == [service("third")]
        assert await waits(book, "newcomer") == 4
        assert await waits(book, "fourth") == 2
        await taken(book, "third")
        assert await waits(book, "fourth") == 1
        assert await gone(book, "second") == [service("fourth")]


async def test_as_many_are_woken_as_can_be_served(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        for name in ("third", "fourth", "fifth"):
            await waits(book, name)
        await gone(book, "first")
        assert await gone(book, "second") == [service("third"), service("fourth")]
        await taken(book, "fourth")
        await taken(book, "third")
        assert await waits(book, "fifth") == 1


async def test_who_goes_while_it_is_its_turn_lets_the_next_have_it(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        await waits(book, "third")
        await waits(book, "fourth")
        assert await gone(book, "first") == [service("third")]
        assert await gone(book, "third") == [service("fourth")]
        await taken(book, "fourth")
        assert book.waiting().keys() <= {service("fourth")}


async def test_those_who_were_not_woken_are_found(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        await waits(book, "third")
        await waits(book, "fourth")
        assert book.servable() == []
        await book.release(service("first"))
        await book.bucket.catch_up()
        assert book.servable() == [service("third")]


async def test_who_is_served_leaves_the_line_even_if_it_was_stopped_in_between(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        await waits(book, "third")
        await book.bucket.catch_up()
        waiter = book.waiting()[service("third")]
        await book.release(service("first"))
        await taken(book, "third")
        await book.join_line(service("third"), waiter)
        await book.bucket.catch_up()
        assert await waits(book, "fourth") == 1
        await taken(book, "third")
        await book.bucket.catch_up()
        assert list(book.waiting()) == [service("fourth")]


async def test_who_becomes_something_else_leaves_the_line(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        await waits(book, "third")
        await waits(book, "fourth")
        await book.keep(service("third"), "third", until=1000.0)
        assert await waits(book, "fourth") == 1


async def test_who_cannot_be_served_lets_those_behind_it_pass(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        await waits(book, "third")
        await waits(book, "fourth")
        await gone(book, "first")
        assert (await book.step_back(service("third"))).wake == (service("fourth"),)
        await taken(book, "fourth")
        assert (await book.step_back(service("second"))).wake == ()


async def test_a_port_that_was_anothers_is_had_once_the_other_goes(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await taken(book, "web", share="word", ports=["80/TCP"])
        await taken(book, "api", share="word", ports=["443/TCP"])
        assert isinstance(await take(book, "web", share="word", ports=["80/TCP", "443/TCP"]), Refused)
        assert book.servable() == []
        assert await gone(book, "api") == [service("web")]
        await taken(book, "web", share="word", ports=["80/TCP", "443/TCP"])
        await book.bucket.catch_up()
        assert book.waiting() == {}


@pytest.mark.parametrize(
    "asked", [pytest.param({"requested": ["10.0.0.16"]}, id="that-address"), pytest.param({}, id="any")]
)
async def test_who_could_share_an_address_by_now_is_found(bus: Bus, asked: dict[str, Any]) -> None:
    async with settled(bus, TWO) as book:
        await taken(book, "web", requested=["10.0.0.16"], share="word", ports=["80/TCP"])
        await taken(book, "second")
        assert not isinstance(await take(book, "api", share="word", ports=["80/TCP"], **asked), Taken)
        assert book.servable() == []
        await taken(book, "web", requested=["10.0.0.16"], share="word", ports=["8080/TCP"])
        await book.bucket.catch_up()
        assert book.servable() == [service("api")]
        assert await taken(book, "api", share="word", ports=["80/TCP"], **asked) == ["10.0.0.16"]


async def test_an_address_given_back_by_asking_for_less_wakes_the_next(bus: Bus) -> None:
    async with settled(bus, TWO, "fd00::10/127") as book:
        await taken(book, "first", BOTH)
        await taken(book, "second", BOTH)
        await waits(book, "third")
        answer = await take(book, "first", ["IPv6"])
        assert isinstance(answer, Taken)
        assert answer.wake == (service("third"),)


async def test_who_shares_need_not_wait(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await taken(book, "first", share="word", ports=["80/TCP"])
        await taken(book, "second")
        await waits(book, "third")
        assert await taken(book, "fourth", share="word", ports=["443/TCP"]) == await taken(
            book, "first", share="word", ports=["80/TCP"]
        )


async def test_a_fixed_address_is_not_a_way_past_the_line(bus: Bus) -> None:
    async with settled(bus, TWO) as book:
        await full(book)
        await waits(book, "third")
        (freed,) = (await book.release(service("first"))).addresses
        assert isinstance(await take(book, "newcomer", requested=[freed]), Waiting)
        assert await taken(book, "third") == [freed]


async def test_each_range_has_its_own_line(bus: Bus) -> None:
    ranges = range_of(TWO, clusters=("runtime",)), range_of("10.0.1.16/31")
    async with opened(bus, *ranges) as book:
        await book.adopt_all([])
        await full(book)
        await waits(book, "third")
        for name in ("first", "second"):
            await taken(book, name, cluster="shoot")
        answer = await take(book, "third", cluster="shoot")
        assert isinstance(answer, Waiting)
        assert answer.place == 1
        assert (await book.release(service("first", "shoot"))).wake == (service("third", "shoot"),)


async def test_many_who_wait_are_all_served_in_the_end(bus: Bus) -> None:
    async with settled(bus, TWO) as book, opened(bus, range_of(TWO)) as other:
        names = [f"web-{number}" for number in range(30)]
        served: list[str] = []

        async def live(name: str, books: Book) -> None:
            while not isinstance(await take(books, name), Taken):
                await asyncio.wait_for(woken[name].wait(), 30)
                woken[name].clear()
            served.append(name)
            for ref in (await books.release(service(name))).wake:
                woken[ref.name].set()

        woken = {name: asyncio.Event() for name in names}
        await asyncio.gather(*(live(name, (book, other)[at % 2]) for at, name in enumerate(names)))
        assert sorted(served) == sorted(names)


@pytest.mark.parametrize("meanwhile", ["the-book-becomes-complete", "an-address-is-given-back"])
async def test_what_is_missed_while_joining_the_line_is_not_waited_for(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    complete = meanwhile == "the-book-becomes-complete"
    async with opened(bus, range_of(TWO)) as book, opened(bus, range_of(TWO)) as another:
        if not complete:
            await book.adopt_all([])
            await full(book)
        joining = book.join_line

        async def late(ref: ObjectRef, waiter: Waiter) -> float:
            if complete:
                await another.adopt_all([])
            else:
                assert (await another.release(service("first"))).wake == ()
            return await joining(ref, waiter)

        monkeypatch.setattr(book, "join_line", late)
        assert isinstance(await take(book, "third"), Taken)
