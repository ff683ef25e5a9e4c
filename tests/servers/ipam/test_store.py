"""The address store: what a Service gets, keeps, shares, and releases."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from bus import streams, subjects
from bus.transport.connection import Bus, connected
from tests.servers.ipam.stores import (
    BOTH,
    SMALL,
    SMALL6,
    TWO,
    allocate,
    allocated,
    claims,
    everybody,
    opened,
    queued,
    range_of,
    rejected,
    service,
    settled,
)
from tests.support.cases import cases
from tests.support.roles import RoleServer
from tests.support.rules import rule
from tests.support.running import soon
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import Range
from workers.loadbalancer.ipam import addressclaims, allocator, holdings
from workers.loadbalancer.ipam.entries import Held, Holder
from workers.loadbalancer.ipam.results import Allocated
from workers.loadbalancer.ipam.store import AddressStore


@rule("LB-7-families")
async def test_a_service_gets_an_address_of_each_family(dual: AddressStore) -> None:
    first, second = await allocated(dual, "web", BOTH)
    assert first.startswith("10.0.0.")
    assert second.startswith("fd00::1")
    await dual.bucket.catch_up()
    assert dual.of(service("web"), "web") == {"IPv4": first, "IPv6": second}
    assert dual.of(service("web"), "another uid") == {}
    assert list((await dual.release(service("web"))).addresses) == [first, second]


@rule("LB-11-3")
async def test_what_a_service_has_it_keeps_whatever_else_changes(store: AddressStore) -> None:
    first = await allocated(store, "web")
    for other in range(8):
        await allocated(store, f"other-{other}")
    for change in ({"ports": ["80/TCP", "443/TCP"]}, {"ports": ["53/UDP"]}, {"share": "word"}, {}):
        assert await allocated(store, "web", **change) == first


async def test_added_families_are_allocated_and_dropped_ones_released(dual: AddressStore) -> None:
    (v4,) = await allocated(dual, "web")
    assert await allocated(dual, "web", BOTH) == [v4, *await allocated(dual, "web", ["IPv6"])]
    assert list(await everybody(dual)) == [dual.of(service("web"), "web")["IPv6"]]


@rule("LB-11-5")
async def test_a_name_gets_its_former_address_if_free(store: AddressStore) -> None:
    before = await allocated(store, "web")
    await store.release(service("web"))
    await allocated(store, "api")
    assert await allocated(store, "web", uid="another") == before


@rule("LB-11-4")
async def test_addresses_that_cannot_be_used_are_never_given_away(bus: Bus) -> None:
    async with settled(bus, "172.18.255.224/27") as store:
        got = [(await allocated(store, f"web-{number}"))[0] for number in range(31)]
        assert sorted(got) == sorted(f"172.18.255.{last}" for last in range(224, 255))
        assert not isinstance(await allocate(store, "one-more"), Allocated)


async def test_only_addresses_of_other_uids_are_released(store: AddressStore) -> None:
    await allocated(store, "web", uid="new")
    assert (await store.release(service("web"), keep_uid="new")).addresses == ()
    assert (await store.release(service("web"), keep_uid="newer")).addresses != ()


async def test_a_recreated_service_takes_over_the_address(store: AddressStore) -> None:
    before = await allocated(store, "web", uid="old", requested=["10.0.0.20"])
    assert await allocated(store, "web", uid="new", requested=["10.0.0.20"]) == before
    await store.bucket.catch_up()
    assert store.of(service("web"), "old") == {}


# Kept addresses.


async def test_a_kept_address_is_not_given_to_others_and_comes_back(two: AddressStore) -> None:
    before = await allocated(two, "web")
    await allocated(two, "api")
    await two.keep(service("web"), "web", until=1000.0)
    await queued(two, "other")
    assert await allocated(two, "web") == before
    await two.bucket.catch_up()
    assert two.expired(now=2000.0) == []


async def test_a_kept_address_is_released_after_the_grace_period(store: AddressStore) -> None:
    (address,) = await allocated(store, "web")
    await store.keep(service("web"), "web", until=1000.0)
    await store.keep(service("web"), "web", until=3000.0)  # asked again, it does not begin anew
    await store.bucket.catch_up()
    assert store.expired(now=999.0) == []
    assert (await store.release_expired(service("web"), now=999.0)).addresses == ()
    assert store.expired(now=1000.0) == [service("web")]
    assert (await store.release_expired(service("web"), now=1000.0)).addresses == (address,)
    assert await everybody(store) == {}


async def test_a_late_release_spares_a_reallocated_address(store: AddressStore) -> None:
    await allocated(store, "web")
    await store.keep(service("web"), "web", until=1000.0)
    await allocated(store, "web")
    assert (await store.release_expired(service("web"), now=2000.0)).addresses == ()


# Fixed addresses.


@rule("LB-7-address")
async def test_a_fixed_address_is_given_and_followed_when_it_changes(dual: AddressStore) -> None:
    fixed = ["10.0.0.20", "fd00::15"]
    assert await allocated(dual, "web", BOTH, requested=fixed) == fixed
    assert (await allocated(dual, "web", BOTH, requested=["10.0.0.21"]))[0] == "10.0.0.21"
    assert await everybody(dual) == {"10.0.0.21": ["web"], "fd00::15": ["web"]}
    assert await allocated(dual, "web", BOTH) == ["10.0.0.21", "fd00::15"]


@cases(
    "asked reason words",
    ("outside", {"requested": ["10.0.1.1"]}, "AddressOutsideRange", "10.0.0.16/28"),
    ("family", {"requested": ["fd00::11"]}, "AddressFamilyMismatch", "spec.ipFamilies"),
    ("taken", {"requested": ["10.0.0.20"]}, "AddressTaken", "Service shop/api"),
    ("foreign", {"requested": ["10.0.0.20"], "cluster": "other"}, "AddressTaken", "another cluster"),
    ("port", {"requested": ["10.0.0.21"], "share": "a"}, "AddressTaken", "port 80/TCP"),
    ("word", {"requested": ["10.0.0.21"], "share": "b"}, "AddressTaken", "shop/dns"),
    ("no-prefix-of-the-family", {"families": ["IPv6"]}, "NoAddressRange", "IPv6"),
)
async def test_an_impossible_request_is_refused_with_its_reason(
    store: AddressStore, asked: dict[str, Any], reason: str, words: str
) -> None:
    await allocated(store, "api", requested=["10.0.0.20"])
    await allocated(store, "dns", requested=["10.0.0.21"], share="a")
    answer = await rejected(store, "web", **asked)
    assert (answer.reason, words in answer.note) == (reason, True)
    assert "shop/api" not in answer.note or "cluster" not in asked


async def test_a_cluster_without_a_range_is_refused(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL, clusters=("shoot--*",))) as store:
        await addressclaims.adopt_all(store, [])
        answer = await rejected(store, "web")
        assert (answer.reason, "loadbalancer.ranges" in answer.note) == ("NoAddressRange", True)
        assert await allocated(store, "web", cluster="shoot--local")


async def test_a_request_for_a_taken_address_waits(store: AddressStore) -> None:
    await allocated(store, "api", requested=["10.0.0.20"])
    before = await allocated(store, "web")
    await rejected(store, "web", requested=["10.0.0.20"])
    assert (await everybody(store))[before[0]] == ["web"]
    assert (await store.release(service("api"))).wake == (service("web"),)
    assert await allocated(store, "web", requested=["10.0.0.20"]) == ["10.0.0.20"]
    await store.bucket.catch_up()
    assert store.index.waiters == {}


# Shared addresses.


@cases(
    "first second shared",
    ("same-word-other-ports", ("a", "80/TCP"), ("a", "443/TCP"), True),
    ("same-number-other-protocol", ("a", "53/TCP"), ("a", "53/UDP"), True),
    ("same-port", ("a", "80/TCP"), ("a", "80/TCP"), False),
    ("other-word", ("a", "80/TCP"), ("b", "443/TCP"), False),
    ("only-one-asks", ("a", "80/TCP"), (None, "443/TCP"), False),
    ("nobody-asks", (None, "80/TCP"), (None, "443/TCP"), False),
    ("other-cluster", ("a", "80/TCP"), ("a", "443/TCP", "shoot"), False),
)
async def test_services_share_an_address_on_different_ports(
    store: AddressStore, first: tuple[str | None, str], second: tuple[Any, ...], shared: bool
) -> None:
    one = await allocated(store, "web", share=first[0], ports=[first[1]])
    word, port, cluster = (*second, RUNTIME)[:3]
    other = await allocated(store, "api", share=word, ports=[port], cluster=cluster)
    assert (one == other) is shared


async def test_a_port_of_a_neighbour_is_refused(store: AddressStore) -> None:
    one = await allocated(store, "web", share="a", ports=["80/TCP"])
    assert await allocated(store, "api", share="a", ports=["443/TCP"]) == one
    answer = await rejected(store, "api", share="a", ports=["443/TCP", "80/TCP"])
    assert answer.reason == "PortTaken"
    assert "port 80/TCP" in answer.note
    assert "Service shop/web" in answer.note
    assert await everybody(store) == {one[0]: ["api", "web"]}
    await store.release(service("web"))
    assert await allocated(store, "api", share="a", ports=["443/TCP", "80/TCP"]) == one


async def test_a_service_that_stops_sharing_gets_its_own_address(store: AddressStore) -> None:
    one = await allocated(store, "web", share="a", ports=["80/TCP"])
    await allocated(store, "api", share="a", ports=["443/TCP"])
    alone = await allocated(store, "api", ports=["443/TCP"])
    assert await everybody(store) == {one[0]: ["web"], alone[0]: ["api"]}


async def test_a_failed_share_is_explained_in_a_notice(store: AddressStore) -> None:
    async def notice(name: str, **asked: Any) -> str:
        answer = await allocate(store, name, share="word", **asked)
        assert isinstance(answer, Allocated)
        return answer.notice

    assert await notice("one") == ""
    [where] = await everybody(store)
    for _ in range(2):  # also when it has one already
        assert await notice("two") == (
            f"it has an address of its own: port 80/TCP of {where} belongs to Service shop/one; to share "
            "that address, use other ports"
        )
    assert await notice("three", ports=["81/TCP"]) == ""


# What crashes leave behind.


@cases("status stays", ("the-older", [], "10.0.0.17"), ("the-one-in-its-status", ["10.0.0.18"], "10.0.0.18"))
async def test_of_two_addresses_of_one_family_one_is_released(
    store: AddressStore, status: list[str], stays: str
) -> None:
    for since, address in enumerate(["10.0.0.17", "10.0.0.18"]):
        await soon(store.write(address, [holder("web", since)], 0))
        await store.bucket.catch_up()
    assert await allocated(store, "web", adopt=status) == [stays]
    assert await everybody(store) == {stays: ["web"]}


async def test_an_address_that_cannot_be_used_is_exchanged(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/30") as store:
        first = await allocated(store, "web")
        second = await allocated(store, "web", avoid=first)
        assert second != first
        assert await everybody(store) == {second[0]: ["web"]}
        await allocated(store, "next", avoid=second)
        third = await allocated(store, "web", avoid=[*first, *second])
        assert third[0] not in (*first, *second)
        assert (await everybody(store)).get(third[0]) == ["web"]


async def test_an_address_that_cannot_be_used_is_kept_where_there_is_no_other(two: AddressStore) -> None:
    [mine] = await allocated(two, "web")
    [theirs] = await allocated(two, "other", share="word")
    sharing: dict[str, Any] = {"share": "word", "ports": ["81/TCP"]}
    assert await allocated(two, "web", avoid=[mine]) == [mine], "all others are in use"
    assert await allocated(two, "web", avoid=[mine], **sharing) == [theirs]
    assert await allocated(two, "web", avoid=[theirs], requested=[theirs], **sharing)
    await two.release(service("other"))
    assert await allocated(two, "web", avoid=[mine, theirs]) == [theirs], "none is better"


async def test_a_longer_waiter_comes_before_an_exchange(two: AddressStore) -> None:
    [mine] = await allocated(two, "web")
    await allocated(two, "other")
    await queued(two, "patient")
    await two.release(service("other"))
    assert await allocated(two, "web", avoid=[mine]) == [mine]


async def test_an_exchange_stays_within_the_quota(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/29", quota=1) as store:
        first = await allocated(store, "web")
        assert await allocated(store, "web", avoid=first) != first
        assert len(await everybody(store)) == 1


async def test_an_unreadable_entry_is_never_allocated(two: AddressStore) -> None:
    await two.bucket.put(subjects.of_address("10.0.0.16"), b"{", 0)
    assert await allocated(two, "web") == ["10.0.0.17"]
    await queued(two, "api")
    nobody = next(holder.ref for address, holder in two.holders() if address == "10.0.0.16")
    assert nobody == ObjectRef("", SERVICES.id, "", "")
    await two.release(nobody)
    assert await allocated(two, "api") == ["10.0.0.16"]


async def test_usage_is_counted_by_range_and_family(dual: AddressStore) -> None:
    await allocated(dual, "web", BOTH)
    await allocated(dual, "api")
    await dual.bucket.catch_up()
    assert dual.usage() == [(SMALL, "IPv4", 2, 16), (SMALL6, "IPv6", 1, 16)]


async def test_only_services_that_share_store_their_ports(two: AddressStore) -> None:
    ports = [f"{number}/TCP" for number in range(250)]
    for name, word in (("alone", None), ("sharing", "word")):
        where = await allocated(two, name, ports=ports, share=word)
        await rejected(two, f"{name}-late", ports=ports, share=word, requested=where)
    await two.bucket.catch_up()
    assert {one.name: len(one.ports) for _, one in two.holders()} == {"alone": 0, "sharing": 250}
    waiting = {ref.name: len(waiter.ports) for ref, waiter in two.index.waiters.items()}
    assert waiting == {"alone-late": 0, "sharing-late": 250}


async def test_so_many_services_share_an_address(two: AddressStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (holdings, allocator):
        monkeypatch.setattr(module, "MOST_SHARING", 2)
    sharing: dict[str, Any] = {"share": "word"}
    first = await allocated(two, "a", **sharing, ports=["1/TCP"])
    assert await allocated(two, "b", **sharing, ports=["2/TCP"]) == first
    assert await allocated(two, "c", **sharing, ports=["3/TCP"]) != first
    refused = await rejected(two, "d", **sharing, ports=["4/TCP"], requested=first)
    assert refused.note.endswith(
        f": 2 Services share {first[0]}, the most that may share one: choose another address"
    )
    assert two.servable() == []
    assert (await two.release(service("a"))).wake == (service("d"),)
    assert await allocated(two, "d", **sharing, ports=["4/TCP"], requested=first) == first


def test_the_largest_entry_fits_into_one_message() -> None:
    ports = [f"{number}/TCP" for number in range(65_000, 65_250)]
    one = holder("n" * 63, share="w" * 63, ports=ports)
    one = one.model_copy(
        update={"cluster": "c" * 63, "namespace": "n" * 63, "uid": "u" * 36, "version": "9" * 12}
    )
    assert len(Held(holders=(one,) * holdings.MOST_SHARING).encoded()) < 1 << 20


def holder(name: str, since: float = 0.0, share: str | None = None, ports: Sequence[str] = ()) -> Holder:
    return Holder(
        cluster="runtime", namespace="shop", name=name, uid=name, since=since, share=share, ports=tuple(ports)
    )


@cases(
    "held claimed after displaced",
    ("nobody", "", "", "", ""),
    ("forgotten", "", "a", "a", ""),
    ("known", "a", "a", "a", ""),
    ("about-to-show-it", "a", "", "a", ""),
    ("status-against-book", "a", "b", "b", "a"),
    ("two-claims-and-the-book", "b", "ab", "b", "a"),
    ("two-claims-and-no-book", "", "ba", "a", "b"),
)
def test_claims_decide_the_owner_of_an_address(held: str, claimed: str, after: str, displaced: str) -> None:
    found = addressclaims.resolve_claims([holder(n) for n in held], [holder(n) for n in claimed])
    assert [h.name for h in found.holders] == list(after)
    assert [h.name for h in found.displaced] == list(displaced)


def test_all_sharers_get_their_address_back() -> None:
    sharing = [holder("a", share="w", ports=["80/TCP"]), holder("b", share="w", ports=["443/TCP"])]
    assert addressclaims.resolve_claims([], sharing).holders == tuple(sharing)


# Rights.


async def test_the_rights_of_a_worker_suffice_for_the_store(
    roles: RoleServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(roles.access("watcher")) as watcher:
        await streams.ensure(watcher)
    async with connected(roles.access("worker")) as bus, opened(bus, TWO) as store:
        await allocate(store, "web")
        await addressclaims.adopt_all(store, claims([("api", ["10.0.0.16"])]))
        assert await allocated(store, "web") == ["10.0.0.17"]
        await allocate(store, "db")
        await store.keep(service("web"), "web", until=1.0)
        assert (await store.release(service("web"))).wake == (service("db"),)
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_service_moves_to_the_range_that_it_asks_for(bus: Bus) -> None:
    internal = Range.model_validate({"prefixes": [TWO], "name": "internal"})
    async with opened(bus, range_of("10.0.1.0/28"), internal) as store:
        await addressclaims.adopt_all(store, [])
        [public] = await allocated(store, "web")
        assert public.startswith("10.0.1.")
        [moved] = await allocated(store, "web", range="internal", adopt=[public])
        assert moved in ("10.0.0.16", "10.0.0.17")
        assert await allocated(store, "web", range="internal", adopt=[public]) == [moved]
        await allocated(store, "other", range="internal")
        full = await queued(store, "third", range="internal")
        assert "all 2 IPv4 addresses of its range are in use" in full.note
        assert await allocated(store, "fourth", range="there-is-none") != []
        outside = await rejected(store, "fifth", range="internal", requested=[public])
        assert TWO in outside.note
        # Its address is that of the Service that has waited longest.
        await store.release(service("web"))
        assert await allocated(store, "third", range="internal") == [moved]
