"""The bus may forget whose an address is: then status tells, and nobody gets what another has."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.connection import Access, Bus, connected
from tests.loadbalancer.books import claims, everybody, opened, range_of, service, settled, take, taken
from tests.natsserver import NatsServer, made_anew
from tests.rules import rule
from tests.running import eventually, running, soon
from workers.loadbalancer.answers import Waiting
from workers.loadbalancer.book import Book

SMALL = "10.0.0.16/28"


async def must_wait(book: Book, name: str, status: Iterable[str] = ()) -> None:
    answer = await take(book, name, adopt=status)
    assert isinstance(answer, Waiting), answer
    assert answer.reason == "AddressBookIncomplete"
    assert "being rebuilt" in answer.note


async def purged(bus: Bus) -> None:
    await bus.purge(f"KV_{streams.ADDRESSES}", subjects.entry(streams.ADDRESSES, ">"))


async def is_settled(book: Book) -> bool:
    return book.settled()


async def in_need(book: Book) -> bool:
    return book.needs_adoption()


async def test_nothing_new_is_given_away_before_all_that_is_in_use_is_known(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL)) as book:
        assert book.needs_adoption()
        await must_wait(book, "newcomer")
        assert await taken(book, "web", adopt=["10.0.0.20"]) == ["10.0.0.20"]
        done = await book.adopt_all(claims([("web", ["10.0.0.20"]), ("api", ["10.0.0.21"])]))
        assert done.wake == (service("newcomer"),)
        assert (book.needs_adoption(), book.settled()) == (False, True)
        new = await taken(book, "newcomer")
        assert await everybody(book) == dict(
            sorted({"10.0.0.20": ["web"], "10.0.0.21": ["api"], new[0]: ["newcomer"]}.items())
        )


async def test_whoever_listens_learns_that_an_empty_book_is_to_be_rebuilt(bus: Bus) -> None:
    needs: list[bool] = []
    book = Book(bus, [range_of(SMALL)])
    book.on_change(lambda: needs.append(book.needs_adoption()))
    async with running(book.run()):
        await soon(book.complete.wait())
    assert needs == [True]


async def test_rebuilding_a_book_in_which_nothing_is_missing_moves_nobody(bus: Bus) -> None:
    async with settled(bus, SMALL) as book:
        shown = {name: await taken(book, name) for name in ("web", "api")}
        before = await everybody(book)
        assert (await book.adopt_all(claims(shown.items()))).wake == ()
        assert await everybody(book) == before


async def test_addresses_that_are_not_ours_to_give_are_not_taken_over(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL)) as book:
        await book.adopt_all(claims([("web", ["192.0.2.1"])]))
        assert await everybody(book) == {}
        assert (await taken(book, "web", adopt=["192.0.2.1"]))[0].startswith("10.0.0.")


@pytest.mark.parametrize("shown", ["10.0.0.20", "10.0.0.21"], ids=["another", "its-own"])
async def test_what_another_has_is_not_taken_over_from_a_stale_status(bus: Bus, shown: str) -> None:
    async with settled(bus, SMALL) as book:
        await taken(book, "api", requested=["10.0.0.20"])
        got = await taken(book, "web", adopt=[shown])
        assert (got == ["10.0.0.21"]) is (shown == "10.0.0.21")
        assert (await everybody(book))["10.0.0.20"] == ["api"]


@rule("LB-11-5")
async def test_after_a_purge_nobody_gets_what_another_has(bus: Bus) -> None:
    async with settled(bus, SMALL) as book, opened(bus, range_of(SMALL)) as owner:
        shown = {name: await taken(book, name) for name in ("web", "api", "db")}
        await purged(bus)
        await must_wait(book, "newcomer")
        await eventually(lambda: in_need(owner))  # though its own consumer never heard of the purge
        assert await taken(book, "web", adopt=shown["web"]) == shown["web"]
        await owner.adopt_all(claims(shown.items()))
        new = await taken(book, "newcomer")
        assert await everybody(book) == {
            a: [n] for a, n in sorted((a, n) for n, s in {**shown, "newcomer": new}.items() for a in s)
        }


class Copies:
    """A server whose store can be put back to an older copy."""

    def __init__(self, nats: NatsServer, folder: Path) -> None:
        self._nats = nats
        self._store = folder / "nats"
        self._copy = folder / "copy"

    async def keep(self, *books: Book) -> None:
        await self._away(books)
        shutil.copytree(self._store, self._copy)
        await self._back(books)

    async def put_back(self, *books: Book) -> None:
        await self._away(books)
        shutil.rmtree(self._store)
        shutil.copytree(self._copy, self._store)
        await self._back(books)

    async def _away(self, books: tuple[Book, ...]) -> None:
        self._nats.stop()
        for book in books:
            await eventually(lambda book=book: _lost(book))  # type: ignore[misc]

    async def _back(self, books: tuple[Book, ...]) -> None:
        self._nats.start()
        for book in books:
            await soon(book.complete.wait())


async def _lost(book: Book) -> bool:
    return not book.complete.is_set() and not book.settled()


@pytest.fixture
async def copies(nats: NatsServer, tmp_path: Path) -> Copies:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
    return Copies(nats, tmp_path)


@rule("LB-11-5")
async def test_in_an_older_copy_of_the_book_nobody_gets_what_another_has(
    nats: NatsServer, copies: Copies
) -> None:
    async with connected(Access(nats.url)) as bus, settled(bus, SMALL) as book:
        await taken(book, "web", requested=["10.0.0.20"])
        await copies.keep(book)
        await taken(book, "web", requested=["10.0.0.21"])
        await taken(book, "api", requested=["10.0.0.20"])
        await taken(book, "db", requested=["10.0.0.22"])
        await copies.put_back(book)

        assert await everybody(book) == {"10.0.0.20": ["web"]}
        await must_wait(book, "newcomer")
        await must_wait(book, "api", ["10.0.0.20"])  # the book says that it is web's
        await must_wait(book, "web")  # the book says so, but its status does not
        assert await taken(book, "db", adopt=["10.0.0.22"]) == ["10.0.0.22"]

        shown = {"web": ["10.0.0.21"], "api": ["10.0.0.20"], "db": ["10.0.0.22"]}
        woken = (await book.adopt_all(claims(shown.items()))).wake
        assert {service("web"), service("newcomer"), service("api")} <= set(woken)
        for name, addresses in shown.items():
            assert await taken(book, name, adopt=addresses) == addresses
        assert await everybody(book) == {"10.0.0.20": ["api"], "10.0.0.21": ["web"], "10.0.0.22": ["db"]}


async def test_who_has_noticed_an_older_copy_waits_for_a_newer_marker(
    nats: NatsServer, copies: Copies
) -> None:
    access = Access(nats.url)
    async with (
        connected(access) as bus,
        connected(access) as another,
        settled(bus, SMALL) as book,
        opened(another, range_of(SMALL)) as other,
    ):
        await eventually(lambda: is_settled(other))
        await copies.keep(book, other)
        await taken(book, "web")
        await other.bucket.catch_up()
        await copies.put_back(book, other)
        assert (book.settled(), other.settled()) == (False, False)
        await other.adopt_all([])
        await eventually(lambda: is_settled(book))
        assert not book.needs_adoption()


async def test_without_a_connection_the_book_is_relied_on_by_nobody(nats: NatsServer, copies: Copies) -> None:
    async with connected(Access(nats.url)) as bus, settled(bus, SMALL) as book:
        before = await taken(book, "web")
        await copies.keep(book)
        assert (book.settled(), book.needs_adoption()) == (True, False)
        assert await taken(book, "web") == before
