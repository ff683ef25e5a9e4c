"""The bus may forget whose an address is: then edges and status tell, and nobody gets what another has."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.transport.connection import Bus, connected
from tests.servers.ipam.stores import (
    BOTH,
    SMALL,
    SMALL6,
    V4,
    allocated,
    claims,
    everybody,
    opened,
    purge,
    queued,
    range_of,
    rejected,
    service,
    settled,
)
from tests.support.cases import cases
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.models.refs import RUNTIME
from windowbox.settings.bussettings import Access
from workers.loadbalancer.ipam.addressclaims import Claim, adopt_all
from workers.loadbalancer.ipam.store import AddressStore

EVERYTHING = [f"10.0.0.{n}" for n in range(16, 32)] + [f"fd00::{n:x}" for n in range(0x10, 0x20)]


def shows(
    name: str, *addresses: str, cluster: str = RUNTIME, both: bool = False, reported: tuple[str, ...] = ()
) -> Claim:
    """Only its status says so, which its owner may have written."""
    families = BOTH if both else V4
    return Claim(service(name, cluster), name, (), (), None, addresses, families, reported)


async def must_wait(store: AddressStore, name: str, **asked: Any) -> None:
    answer = await queued(store, name, **asked)
    assert answer.reason == "AddressBookIncomplete"
    assert "being restored" in answer.note


async def test_nothing_is_allocated_before_all_claims_are_known(bus: Bus) -> None:
    async with opened(bus, SMALL) as store:
        assert store.needs_adoption()
        await must_wait(store, "newcomer")
        await must_wait(store, "thief", shown=["10.0.0.20"])
        assert await allocated(store, "web", adopt=["10.0.0.20"]) == ["10.0.0.20"]
        done = await adopt_all(store, claims([("web", ["10.0.0.20"]), ("api", ["10.0.0.21"])]))
        assert set(done.wake) == {service("newcomer"), service("thief")}
        assert (store.needs_adoption(), store.is_complete()) == (False, True)
        new = await allocated(store, "newcomer")
        assert await everybody(store) == {"10.0.0.20": ["web"], "10.0.0.21": ["api"], new[0]: ["newcomer"]}


async def test_listeners_see_that_an_empty_store_needs_adoption(bus: Bus) -> None:
    needs: list[bool] = []
    store = AddressStore(bus, [range_of(SMALL)])
    store.on_change(lambda: needs.append(store.needs_adoption()))
    async with running(store.run()):
        await soon(store.synced.wait())
    assert needs == [True]


async def test_adoption_of_a_complete_store_changes_nothing(store: AddressStore) -> None:
    shown = {name: await allocated(store, name) for name in ("web", "api")}
    before = await everybody(store)
    assert (await adopt_all(store, claims(shown.items()))).wake == ()
    assert await everybody(store) == before


async def test_addresses_outside_the_range_are_not_adopted(bus: Bus) -> None:
    async with opened(bus, SMALL) as store:
        await adopt_all(store, claims([("web", ["192.0.2.1"])]))
        assert await everybody(store) == {}
        assert (await allocated(store, "web", adopt=["192.0.2.1"]))[0].startswith("10.0.0.")


@pytest.mark.parametrize("shown", ["10.0.0.20", "10.0.0.21"], ids=["another", "its-own"])
async def test_a_stale_status_takes_over_no_address(store: AddressStore, shown: str) -> None:
    await allocated(store, "api", requested=["10.0.0.20"])
    got = await allocated(store, "web", adopt=[shown])
    assert (got == ["10.0.0.21"]) is (shown == "10.0.0.21")
    assert (await everybody(store))["10.0.0.20"] == ["api"]


# Services whose status shows addresses that nobody gave them.


async def test_a_service_showing_all_addresses_gets_one_per_family(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL, SMALL6)) as store:
        await adopt_all(store, [shows("greedy", *EVERYTHING, both=True)])
        assert await everybody(store) == {"10.0.0.16": ["greedy"], "fd00::10": ["greedy"]}


@pytest.mark.parametrize("lost", [True, False], ids=["the-book-is-lost", "another-owner"])
async def test_a_shown_address_stays_with_its_owner(bus: Bus, lost: bool) -> None:
    victim = claims([("victim", ["10.0.0.20"])])
    async with opened(bus, SMALL) as store:
        if not lost:
            await adopt_all(store, victim)
        thief = shows("a-thief", "10.0.0.20")
        await adopt_all(store, [thief, *(victim if lost else [])])
        assert await everybody(store) == {"10.0.0.20": ["victim"]}


async def test_a_service_with_an_address_adopts_no_other(store: AddressStore) -> None:
    has = await allocated(store, "greedy")
    await adopt_all(store, [shows("greedy", *EVERYTHING)])
    assert await everybody(store) == {has[0]: ["greedy"]}


@cases(
    "victim",
    ("of-the-runtime-cluster", {}),
    ("with-our-report", {"cluster": "z", "reported": ("10.0.0.20",)}),
)
async def test_what_owners_write_decides_no_contest(bus: Bus, victim: dict[str, Any]) -> None:
    async with opened(bus, SMALL) as store:
        thief = shows("a-thief", "10.0.0.20", "10.0.0.21", cluster="a")
        other = shows("web", "10.0.0.22", cluster="b")
        await adopt_all(store, [thief, other, shows("victim", "10.0.0.20", **victim)])
        assert await everybody(store) == {"10.0.0.20": ["victim"], "10.0.0.22": ["web"]}


async def test_a_shown_address_goes_to_waiting_services_first(two: AddressStore) -> None:
    await allocated(two, "first", requested=["10.0.0.16"])
    await allocated(two, "second", requested=["10.0.0.17"])
    await queued(two, "waiting")
    await two.release(service("second"))
    await adopt_all(two, [shows("thief", "10.0.0.17")])
    assert await everybody(two) == {"10.0.0.16": ["first"]}
    await queued(two, "thief", shown=["10.0.0.17"])
    assert await allocated(two, "waiting") == ["10.0.0.17"]


async def test_a_shown_address_is_preferred_if_it_is_free(store: AddressStore) -> None:
    assert await allocated(store, "web", shown=["10.0.0.27"]) == ["10.0.0.27"]
    assert await allocated(store, "thief", shown=["10.0.0.27"]) != ["10.0.0.27"]


async def test_a_cluster_gets_no_more_than_its_quota(bus: Bus) -> None:
    async with opened(bus, SMALL, quota=2) as store:
        await adopt_all(store, [shows(f"s{n}", f"10.0.0.{20 + n}", cluster="greedy") for n in range(5)])
        assert len(await everybody(store)) == 2
        assert (await rejected(store, "s9", cluster="greedy")).reason == "AddressQuotaExceeded"
        await rejected(store, "s8", cluster="greedy", requested=["10.0.0.30"])
        await allocated(store, "other")
        await store.release(service("s0", "greedy"))
        await allocated(store, "s9", cluster="greedy")


# A bus that has lost entries.


@rule("LB-11-5")
async def test_after_a_purge_no_address_gets_two_owners(bus: Bus, store: AddressStore) -> None:
    async with opened(bus, SMALL) as owner:
        shown = {name: await allocated(store, name) for name in ("web", "api", "db")}
        await purge(bus)
        await must_wait(store, "newcomer")
        await eventually(owner.needs_adoption)  # though its own consumer never heard of the purge
        assert await allocated(store, "web", adopt=shown["web"]) == shown["web"]
        await adopt_all(owner, claims(shown.items()))
        shown["newcomer"] = await allocated(store, "newcomer")
        assert await everybody(store) == {address: [name] for name, [address] in shown.items()}


@contextlib.asynccontextmanager
async def away(nats: NatsServer, *books: AddressStore) -> AsyncIterator[None]:
    """The server is stopped as long as the body lasts."""
    nats.stop()
    await eventually(lambda: not any(store.synced.is_set() or store.is_complete() for store in books))
    yield
    nats.start()
    for store in books:
        await soon(store.synced.wait())


@rule("LB-11-5")
async def test_an_older_store_never_causes_double_allocation(
    nats: NatsServer, nats_bus: Bus, tmp_path: Path
) -> None:
    async with settled(nats_bus, SMALL) as store:
        await allocated(store, "web", requested=["10.0.0.20"])
        async with away(nats, store):
            shutil.copytree(tmp_path / "nats", tmp_path / "copy")
        await allocated(store, "web", requested=["10.0.0.21"])
        await allocated(store, "api", requested=["10.0.0.20"])
        await allocated(store, "db", requested=["10.0.0.22"])
        async with away(nats, store):
            shutil.rmtree(tmp_path / "nats")
            shutil.move(tmp_path / "copy", tmp_path / "nats")

        assert await everybody(store) == {"10.0.0.20": ["web"]}
        await must_wait(store, "newcomer")
        await must_wait(store, "api", adopt=["10.0.0.20"])  # the book says that it is web's
        await must_wait(store, "web")  # the book says so, but its status does not
        assert await allocated(store, "db", adopt=["10.0.0.22"]) == ["10.0.0.22"]

        shown = {"web": ["10.0.0.21"], "api": ["10.0.0.20"], "db": ["10.0.0.22"]}
        woken = (await adopt_all(store, claims(shown.items()))).wake
        assert {service("web"), service("newcomer"), service("api")} <= set(woken)
        for name, addresses in shown.items():
            assert await allocated(store, name, adopt=addresses) == addresses
        assert await everybody(store) == {address: [name] for name, [address] in shown.items()}


async def test_a_process_that_noticed_an_older_copy_waits_for_a_newer_marker(
    nats: NatsServer, nats_bus: Bus, tmp_path: Path
) -> None:
    async with (
        connected(Access(nats.url)) as another,
        settled(nats_bus, SMALL) as store,
        opened(another, SMALL) as other,
    ):
        await eventually(other.is_complete)
        async with away(nats, store, other):
            shutil.copytree(tmp_path / "nats", tmp_path / "copy")
        await allocated(store, "web")
        await other.bucket.catch_up()
        async with away(nats, store, other):
            shutil.rmtree(tmp_path / "nats")
            shutil.move(tmp_path / "copy", tmp_path / "nats")
        assert (store.is_complete(), other.is_complete()) == (False, False)
        await adopt_all(other, [])
        await eventually(store.is_complete)
        assert not store.needs_adoption()


async def test_a_store_is_incomplete_while_disconnected(nats: NatsServer, nats_bus: Bus) -> None:
    async with settled(nats_bus, SMALL) as store:
        before = await allocated(store, "web")
        async with away(nats, store):
            pass
        assert (store.is_complete(), store.needs_adoption()) == (True, False)
        assert await allocated(store, "web") == before
