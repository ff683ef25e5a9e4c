"""The bus may forget whose an address is: then status tells, and nobody gets what another has."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from bus import streams, subjects
from bus.transport.connection import Bus, connected
from tests.servers.ipam.stores import (
    allocate,
    allocated,
    claims,
    everybody,
    opened,
    range_of,
    service,
    settled,
)
from tests.support.natsserver import NatsServer, made_anew
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.settings.bussettings import Access
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.results import Queued
from workers.loadbalancer.ipam.store import AddressStore

SMALL = "10.0.0.16/28"


async def must_wait(store: AddressStore, name: str, status: Iterable[str] = ()) -> None:
    answer = await allocate(store, name, adopt=status)
    assert isinstance(answer, Queued), answer
    assert answer.reason == "AddressBookIncomplete"
    assert "being restored" in answer.note


async def purged(bus: Bus) -> None:
    await bus.purge(f"KV_{streams.ADDRESSES}", subjects.entry(streams.ADDRESSES, ">"))


async def is_settled(store: AddressStore) -> bool:
    return store.is_complete()


async def in_need(store: AddressStore) -> bool:
    return store.needs_adoption()


async def test_nothing_is_allocated_before_all_claims_are_known(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL)) as store:
        assert store.needs_adoption()
        await must_wait(store, "newcomer")
        assert await allocated(store, "web", adopt=["10.0.0.20"]) == ["10.0.0.20"]
        done = await addressclaims.adopt_all(store, claims([("web", ["10.0.0.20"]), ("api", ["10.0.0.21"])]))
        assert done.wake == (service("newcomer"),)
        assert (store.needs_adoption(), store.is_complete()) == (False, True)
        new = await allocated(store, "newcomer")
        assert await everybody(store) == dict(
            sorted({"10.0.0.20": ["web"], "10.0.0.21": ["api"], new[0]: ["newcomer"]}.items())
        )


async def test_whoever_listens_learns_that_an_empty_book_is_to_be_rebuilt(bus: Bus) -> None:
    needs: list[bool] = []
    store = AddressStore(bus, [range_of(SMALL)])
    store.on_change(lambda: needs.append(store.needs_adoption()))
    async with running(store.run()):
        await soon(store.synced.wait())
    assert needs == [True]


async def test_rebuilding_a_book_in_which_nothing_is_missing_moves_nobody(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        shown = {name: await allocated(store, name) for name in ("web", "api")}
        before = await everybody(store)
        assert (await addressclaims.adopt_all(store, claims(shown.items()))).wake == ()
        assert await everybody(store) == before


async def test_addresses_that_are_not_ours_to_give_are_not_taken_over(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL)) as store:
        await addressclaims.adopt_all(store, claims([("web", ["192.0.2.1"])]))
        assert await everybody(store) == {}
        assert (await allocated(store, "web", adopt=["192.0.2.1"]))[0].startswith("10.0.0.")


@pytest.mark.parametrize("shown", ["10.0.0.20", "10.0.0.21"], ids=["another", "its-own"])
async def test_what_another_has_is_not_taken_over_from_a_stale_status(bus: Bus, shown: str) -> None:
    async with settled(bus, SMALL) as store:
        await allocated(store, "api", requested=["10.0.0.20"])
        got = await allocated(store, "web", adopt=[shown])
        assert (got == ["10.0.0.21"]) is (shown == "10.0.0.21")
        assert (await everybody(store))["10.0.0.20"] == ["api"]


@rule("LB-11-5")
async def test_after_a_purge_nobody_gets_what_another_has(bus: Bus) -> None:
    async with settled(bus, SMALL) as store, opened(bus, range_of(SMALL)) as owner:
        shown = {name: await allocated(store, name) for name in ("web", "api", "db")}
        await purged(bus)
        await must_wait(store, "newcomer")
        await eventually(lambda: in_need(owner))  # though its own consumer never heard of the purge
        assert await allocated(store, "web", adopt=shown["web"]) == shown["web"]
        await addressclaims.adopt_all(owner, claims(shown.items()))
        new = await allocated(store, "newcomer")
        assert await everybody(store) == {
            a: [n] for a, n in sorted((a, n) for n, s in {**shown, "newcomer": new}.items() for a in s)
        }


class Copies:
    """A server whose store can be put back to an older copy."""

    def __init__(self, nats: NatsServer, folder: Path) -> None:
        self._nats = nats
        self._store = folder / "nats"
        self._copy = folder / "copy"

    async def keep(self, *books: AddressStore) -> None:
        await self._away(books)
        shutil.copytree(self._store, self._copy)
        await self._back(books)

    async def put_back(self, *books: AddressStore) -> None:
        await self._away(books)
        shutil.rmtree(self._store)
        shutil.copytree(self._copy, self._store)
        await self._back(books)

    async def _away(self, books: tuple[AddressStore, ...]) -> None:
        self._nats.stop()
        for store in books:
            await eventually(lambda store=store: _lost(store))  # type: ignore[misc]

    async def _back(self, books: tuple[AddressStore, ...]) -> None:
        self._nats.start()
        for store in books:
            await soon(store.synced.wait())


async def _lost(store: AddressStore) -> bool:
    return not store.synced.is_set() and not store.is_complete()


@pytest.fixture
async def copies(nats: NatsServer, tmp_path: Path) -> Copies:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
    return Copies(nats, tmp_path)


@rule("LB-11-5")
async def test_an_older_store_never_causes_double_allocation(nats: NatsServer, copies: Copies) -> None:
    async with connected(Access(nats.url)) as bus, settled(bus, SMALL) as store:
        await allocated(store, "web", requested=["10.0.0.20"])
        await copies.keep(store)
        await allocated(store, "web", requested=["10.0.0.21"])
        await allocated(store, "api", requested=["10.0.0.20"])
        await allocated(store, "db", requested=["10.0.0.22"])
        await copies.put_back(store)

        assert await everybody(store) == {"10.0.0.20": ["web"]}
        await must_wait(store, "newcomer")
        await must_wait(store, "api", ["10.0.0.20"])  # the book says that it is web's
        await must_wait(store, "web")  # the book says so, but its status does not
        assert await allocated(store, "db", adopt=["10.0.0.22"]) == ["10.0.0.22"]

        shown = {"web": ["10.0.0.21"], "api": ["10.0.0.20"], "db": ["10.0.0.22"]}
        woken = (await addressclaims.adopt_all(store, claims(shown.items()))).wake
        assert {service("web"), service("newcomer"), service("api")} <= set(woken)
        for name, addresses in shown.items():
            assert await allocated(store, name, adopt=addresses) == addresses
        assert await everybody(store) == {"10.0.0.20": ["api"], "10.0.0.21": ["web"], "10.0.0.22": ["db"]}


async def test_who_has_noticed_an_older_copy_waits_for_a_newer_marker(
    nats: NatsServer, copies: Copies
) -> None:
    access = Access(nats.url)
    async with (
        connected(access) as bus,
        connected(access) as another,
        settled(bus, SMALL) as store,
        opened(another, range_of(SMALL)) as other,
    ):
        await eventually(lambda: is_settled(other))
        await copies.keep(store, other)
        await allocated(store, "web")
        await other.bucket.catch_up()
        await copies.put_back(store, other)
        assert (store.is_complete(), other.is_complete()) == (False, False)
        await addressclaims.adopt_all(other, [])
        await eventually(lambda: is_settled(store))
        assert not store.needs_adoption()


async def test_without_a_connection_the_book_is_relied_on_by_nobody(nats: NatsServer, copies: Copies) -> None:
    async with connected(Access(nats.url)) as bus, settled(bus, SMALL) as store:
        before = await allocated(store, "web")
        await copies.keep(store)
        assert (store.is_complete(), store.needs_adoption()) == (True, False)
        assert await allocated(store, "web") == before
