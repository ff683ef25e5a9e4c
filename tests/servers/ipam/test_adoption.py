"""Services whose status shows addresses that nobody gave them: their owners may write it."""

from __future__ import annotations

import pytest

from bus.transport.connection import Bus
from tests.servers.ipam.stores import (
    BOTH,
    V4,
    allocate,
    allocated,
    everybody,
    opened,
    range_of,
    service,
    settled,
)
from windowbox.models.refs import RUNTIME
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.addressclaims import Claim
from workers.loadbalancer.ipam.results import Queued, Rejected

SMALL = "10.0.0.16/28"
V6 = "fd00::10/124"
TWO = "10.0.0.16/31"
EVERYTHING = [f"10.0.0.{n}" for n in range(16, 32)] + [f"fd00::{n:x}" for n in range(0x10, 0x20)]


def served(name: str, *addresses: str) -> Claim:
    """An edge says so."""
    return Claim(service(name), name, addresses, ("80/TCP",))


def shows(
    name: str, *addresses: str, created: str = "2026", cluster: str = RUNTIME, both: bool = False
) -> Claim:
    """Only its status says so."""
    return Claim(
        service(name, cluster), name, (), ("80/TCP",), None, addresses, BOTH if both else V4, created
    )


async def test_who_shows_all_addresses_gets_one_of_each_family(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL, V6)) as store:
        await addressclaims.adopt_all(store, [shows("greedy", *EVERYTHING, both=True)])
        assert await everybody(store) == {"10.0.0.16": ["greedy"], "fd00::10": ["greedy"]}


@pytest.mark.parametrize("lost", [True, False], ids=["the-book-is-lost", "another-owner"])
async def test_who_shows_the_address_of_another_does_not_get_it(bus: Bus, lost: bool) -> None:
    async with opened(bus, range_of(SMALL)) as store:
        if not lost:
            await addressclaims.adopt_all(store, [served("victim", "10.0.0.20")])
        claims = [] if not lost else [served("victim", "10.0.0.20")]
        await addressclaims.adopt_all(store, [shows("thief", "10.0.0.20", created="2020"), *claims])
        assert await everybody(store) == {"10.0.0.20": ["victim"]}


async def test_who_has_one_gets_no_other_by_its_status(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        has = await allocated(store, "greedy")
        await addressclaims.adopt_all(store, [shows("greedy", *EVERYTHING)])
        assert await everybody(store) == {has[0]: ["greedy"]}


async def test_where_all_is_lost_uncontested_claims_come_first_then_older_services(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL)) as store:
        thief = shows("thief", "10.0.0.20", "10.0.0.21", created="2025")
        victim, other = (
            shows("victim", "10.0.0.20", created="2024"),
            shows("web", "10.0.0.22", created="2026"),
        )
        await addressclaims.adopt_all(store, [thief, other, victim])
        assert await everybody(store) == {"10.0.0.20": ["victim"], "10.0.0.22": ["web"]}


async def test_who_only_shows_an_address_comes_after_those_who_wait(bus: Bus) -> None:
    async with settled(bus, TWO) as store:
        await allocated(store, "first", requested=["10.0.0.16"])
        await allocated(store, "second", requested=["10.0.0.17"])
        assert isinstance(await allocate(store, "waiting"), Queued)
        await store.release(service("second"))
        await addressclaims.adopt_all(store, [shows("thief", "10.0.0.17")])
        assert await everybody(store) == {"10.0.0.16": ["first"]}
        assert isinstance(await allocate(store, "thief", shown=["10.0.0.17"]), Queued)
        assert await allocated(store, "waiting") == ["10.0.0.17"]


async def test_a_shown_address_is_preferred_if_it_is_free(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        assert await allocated(store, "web", shown=["10.0.0.27"]) == ["10.0.0.27"]
        got = await allocated(store, "thief", shown=["10.0.0.27"])
        assert got != ["10.0.0.27"]


async def test_a_shown_address_waits_until_all_in_use_are_known(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL)) as store:
        answer = await allocate(store, "thief", shown=["10.0.0.20"])
        assert isinstance(answer, Queued)
        assert answer.reason == "AddressBookIncomplete"


async def test_a_cluster_gets_no_more_than_its_quota(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL), quota=2) as store:
        await addressclaims.adopt_all(
            store, [shows(f"s{n}", f"10.0.0.{20 + n}", cluster="greedy") for n in range(5)]
        )
        assert len(await everybody(store)) == 2
        refused = await allocate(store, "s9", cluster="greedy")
        assert isinstance(refused, Rejected)
        assert refused.reason == "AddressQuotaExceeded"
        fixed = await allocate(store, "s8", cluster="greedy", requested=["10.0.0.30"])
        assert isinstance(fixed, Rejected)
        await allocated(store, "other")
        await store.release(service("s0", "greedy"))
        await allocated(store, "s9", cluster="greedy")
