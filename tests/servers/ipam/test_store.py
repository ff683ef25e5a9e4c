"""The address store: what a Service gets, keeps, shares, and releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bus import subjects
from bus.transport.connection import Bus
from tests.servers.ipam.stores import BOTH, allocate, allocated, everybody, opened, range_of, service, settled
from tests.support.rules import rule
from tests.support.running import soon
from windowbox.models.refs import SERVICES, ObjectRef
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.entries import Holder
from workers.loadbalancer.ipam.results import Allocated, Queued, Rejected
from workers.loadbalancer.ipam.store import AddressStore

SMALL = "10.0.0.16/28"
SMALL6 = "fd00::10/124"


@rule("LB-7-families")
async def test_a_service_gets_an_address_of_each_family(bus: Bus) -> None:
    async with settled(bus, SMALL, SMALL6) as store:
        first, second = await allocated(store, "web", BOTH)
        assert first.startswith("10.0.0.")
        assert second.startswith("fd00::1")
        await store.bucket.catch_up()
        assert store.of(service("web"), "web") == {"IPv4": first, "IPv6": second}
        assert store.of(service("web"), "another uid") == {}


@rule("LB-11-3")
async def test_what_a_service_has_it_keeps_whatever_else_changes(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        first = await allocated(store, "web")
        for other in range(8):
            await allocated(store, f"other-{other}")
        for change in ({"ports": ["80/TCP", "443/TCP"]}, {"ports": ["53/UDP"]}, {"share": "word"}, {}):
            assert await allocated(store, "web", **change) == first


async def test_asking_again_writes_nothing(bus: Bus) -> None:
    async with settled(bus, SMALL, SMALL6) as store:
        await allocated(store, "web", BOTH)
        before = await last(bus)
        await allocated(store, "web", BOTH)
        assert await last(bus) == before


async def test_another_process_gives_the_same_answer_however_late_its_news(bus: Bus) -> None:
    async with settled(bus, SMALL) as store, opened(bus, range_of(SMALL)) as other:
        for number in range(14):
            assert await allocated(store, f"web-{number}") == await allocated(other, f"web-{number}")


async def last(bus: Bus) -> int:
    return int((await bus.api("STREAM.INFO.KV_addresses"))["state"]["last_seq"])


async def test_added_families_are_allocated_and_dropped_ones_released(bus: Bus) -> None:
    async with settled(bus, SMALL, SMALL6) as store:
        (v4,) = await allocated(store, "web")
        assert await allocated(store, "web", BOTH) == [v4, *await allocated(store, "web", ["IPv6"])]
        assert list(await everybody(store)) == [store.of(service("web"), "web")["IPv6"]]


@rule("LB-11-5")
async def test_a_name_gets_its_former_address_if_free(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
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


async def test_what_is_given_back_is_free(bus: Bus) -> None:
    async with settled(bus, SMALL, SMALL6) as store:
        addresses = await allocated(store, "web", BOTH)
        assert list((await store.release(service("web"))).addresses) == addresses
        assert await everybody(store) == {}
        assert (await store.release(service("web"))).addresses == ()


async def test_only_what_belongs_to_a_uid_is_given_back(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        await allocated(store, "web", uid="new")
        assert (await store.release(service("web"), keep_uid="new")).addresses == ()
        assert (await store.release(service("web"), keep_uid="newer")).addresses != ()


async def test_a_recreated_service_takes_over_the_address(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        before = await allocated(store, "web", uid="old", requested=["10.0.0.20"])
        assert await allocated(store, "web", uid="new", requested=["10.0.0.20"]) == before
        await store.bucket.catch_up()
        assert store.of(service("web"), "old") == {}


# Kept addresses.


async def test_a_kept_address_is_not_given_to_others_and_comes_back(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/31") as store:
        before = await allocated(store, "web")
        await allocated(store, "api")
        await store.keep(service("web"), "web", until=1000.0)
        assert not isinstance(await allocate(store, "other"), Allocated)
        assert await allocated(store, "web") == before
        await store.bucket.catch_up()
        assert store.expired(now=2000.0) == []


async def test_a_kept_address_is_given_back_when_its_time_is_over(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        (address,) = await allocated(store, "web")
        await store.keep(service("web"), "web", until=1000.0)
        await store.keep(service("web"), "web", until=3000.0)  # asked again, it does not begin anew
        await store.bucket.catch_up()
        assert store.expired(now=999.0) == []
        assert (await store.release_expired(service("web"), now=999.0)).addresses == ()
        assert store.expired(now=1000.0) == [service("web")]
        assert (await store.release_expired(service("web"), now=1000.0)).addresses == (address,)
        assert await everybody(store) == {}


async def test_a_late_release_spares_a_reallocated_address(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        await allocated(store, "web")
        await store.keep(service("web"), "web", until=1000.0)
        await allocated(store, "web")
        assert (await store.release_expired(service("web"), now=2000.0)).addresses == ()


# Fixed addresses.


@rule("LB-7-address")
async def test_a_fixed_address_is_given_and_followed_when_it_changes(bus: Bus) -> None:
    async with settled(bus, SMALL, SMALL6) as store:
        assert await allocated(store, "web", BOTH, requested=["10.0.0.20", "fd00::15"]) == [
            "10.0.0.20",
            "fd00::15",
        ]
        assert (await allocated(store, "web", BOTH, requested=["10.0.0.21"]))[0] == "10.0.0.21"
        assert await everybody(store) == {"10.0.0.21": ["web"], "fd00::15": ["web"]}
        assert await allocated(store, "web", BOTH) == ["10.0.0.21", "fd00::15"]


@pytest.mark.parametrize(
    ("asked", "reason", "words"),
    [
        pytest.param({"requested": ["10.0.1.1"]}, "AddressOutsideRange", "10.0.0.16/28", id="outside"),
        pytest.param({"requested": ["fd00::11"]}, "AddressFamilyMismatch", "spec.ipFamilies", id="family"),
        pytest.param({"requested": ["10.0.0.20"]}, "AddressTaken", "Service shop/api", id="taken"),
        pytest.param(
            {"requested": ["10.0.0.20"], "cluster": "other"}, "AddressTaken", "another cluster", id="foreign"
        ),
        pytest.param({"requested": ["10.0.0.21"], "share": "a"}, "AddressTaken", "port 80/TCP", id="port"),
        pytest.param({"requested": ["10.0.0.21"], "share": "b"}, "AddressTaken", "shop/dns", id="word"),
        pytest.param({"families": ["IPv6"]}, "NoAddressRange", "IPv6", id="no-prefix-of-the-family"),
    ],
)
async def test_what_cannot_be_given_is_refused_in_plain_words(
    bus: Bus, asked: dict[str, Any], reason: str, words: str
) -> None:
    async with settled(bus, SMALL) as store:
        await allocated(store, "api", requested=["10.0.0.20"])
        await allocated(store, "dns", requested=["10.0.0.21"], share="a")
        answer = await allocate(store, "web", **asked)
        assert isinstance(answer, Rejected)
        assert answer.reason == reason
        assert words in answer.note
        assert "shop/api" not in answer.note or "cluster" not in asked


async def test_a_cluster_without_a_range_is_told_so(bus: Bus) -> None:
    async with opened(bus, range_of(SMALL, clusters=("shoot--*",))) as store:
        await addressclaims.adopt_all(store, [])
        answer = await allocate(store, "web")
        assert isinstance(answer, Rejected)
        assert (answer.reason, "loadbalancer.ranges" in answer.note) == ("NoAddressRange", True)
        assert await allocated(store, "web", cluster="shoot--local")


async def test_a_request_for_a_taken_address_waits(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        await allocated(store, "api", requested=["10.0.0.20"])
        before = await allocated(store, "web")
        assert isinstance(await allocate(store, "web", requested=["10.0.0.20"]), Rejected)
        assert (await everybody(store))[before[0]] == ["web"]
        assert (await store.release(service("api"))).wake == (service("web"),)
        assert await allocated(store, "web", requested=["10.0.0.20"]) == ["10.0.0.20"]
        await store.bucket.catch_up()
        assert store.index.waiters == {}


# Shared addresses.


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        pytest.param(("a", ["80/TCP"]), ("a", ["443/TCP"]), True, id="same-word-other-ports"),
        pytest.param(("a", ["53/TCP"]), ("a", ["53/UDP"]), True, id="same-number-other-protocol"),
        pytest.param(("a", ["80/TCP"]), ("a", ["80/TCP"]), False, id="same-port"),
        pytest.param(("a", ["80/TCP"]), ("b", ["443/TCP"]), False, id="other-word"),
        pytest.param(("a", ["80/TCP"]), (None, ["443/TCP"]), False, id="only-one-asks"),
        pytest.param((None, ["80/TCP"]), (None, ["443/TCP"]), False, id="nobody-asks"),
    ],
)
async def test_services_share_an_address_on_different_ports(
    bus: Bus, first: tuple[str | None, list[str]], second: tuple[str | None, list[str]], shared: bool
) -> None:
    async with settled(bus, SMALL) as store:
        one = await allocated(store, "web", share=first[0], ports=first[1])
        other = await allocated(store, "api", share=second[0], ports=second[1])
        assert (one == other) is shared


async def test_services_of_different_clusters_share_nothing(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        one = await allocated(store, "web", share="a", ports=["80/TCP"])
        assert await allocated(store, "api", share="a", ports=["443/TCP"], cluster="shoot") != one


async def test_a_port_of_a_neighbour_is_refused(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        one = await allocated(store, "web", share="a", ports=["80/TCP"])
        assert await allocated(store, "api", share="a", ports=["443/TCP"]) == one
        answer = await allocate(store, "api", share="a", ports=["443/TCP", "80/TCP"])
        assert isinstance(answer, Rejected)
        assert answer.reason == "PortTaken"
        assert "port 80/TCP" in answer.note
        assert "Service shop/web" in answer.note
        assert await everybody(store) == {one[0]: ["api", "web"]}
        await store.release(service("web"))
        assert await allocated(store, "api", share="a", ports=["443/TCP", "80/TCP"]) == one


async def test_a_service_that_stops_sharing_gets_its_own_address(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        one = await allocated(store, "web", share="a", ports=["80/TCP"])
        await allocated(store, "api", share="a", ports=["443/TCP"])
        alone = await allocated(store, "api", ports=["443/TCP"])
        assert await everybody(store) == dict(sorted({one[0]: ["web"], alone[0]: ["api"]}.items()))


async def test_a_shared_address_is_free_when_the_last_has_gone(bus: Bus) -> None:
    async with settled(bus, SMALL) as store:
        one = await allocated(store, "web", share="a", ports=["80/TCP"])
        await allocated(store, "api", share="a", ports=["443/TCP"])
        await store.release(service("web"))
        assert await everybody(store) == {one[0]: ["api"]}
        await store.release(service("api"))
        assert await everybody(store) == {}


# What crashes leave behind.


@pytest.mark.parametrize(
    ("status", "stays"),
    [
        pytest.param([], "10.0.0.17", id="the-older"),
        pytest.param(["10.0.0.18"], "10.0.0.18", id="the-one-in-its-status"),
    ],
)
async def test_of_two_addresses_of_one_family_one_is_given_back(
    bus: Bus, status: list[str], stays: str
) -> None:
    async with settled(bus, SMALL) as store:
        for since, address in enumerate(["10.0.0.17", "10.0.0.18"]):
            await note(store, address, [holder("web", since)])
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


async def test_an_address_that_cannot_be_used_is_kept_where_there_is_no_other(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/31") as store:
        [mine] = await allocated(store, "web")
        [theirs] = await allocated(store, "other", share="word")
        assert await allocated(store, "web", avoid=[mine]) == [mine], "all others are in use"
        assert await allocated(store, "web", avoid=[mine], share="word", ports=["81/TCP"]) == [theirs]
        assert await allocated(
            store, "web", avoid=[theirs], requested=[theirs], share="word", ports=["81/TCP"]
        )
        await store.release(service("other"))
        assert await allocated(store, "web", avoid=[mine, theirs]) == [theirs], "none is better"


async def test_who_waits_longer_comes_before_an_exchange(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/31") as store:
        [mine] = await allocated(store, "web")
        await allocated(store, "other")
        assert isinstance(await allocate(store, "patient"), Queued)
        await store.release(service("other"))
        assert await allocated(store, "web", avoid=[mine]) == [mine]


async def test_an_exchange_stays_within_the_quota(bus: Bus) -> None:
    async with opened(bus, range_of("10.0.0.16/29"), quota=1) as store:
        await addressclaims.adopt_all(store, [])
        first = await allocated(store, "web")
        assert await allocated(store, "web", avoid=first) != first
        assert len(await everybody(store)) == 1


async def test_an_unreadable_entry_is_never_allocated(bus: Bus) -> None:
    async with settled(bus, "10.0.0.16/31") as store:
        await store.bucket.put(subjects.of_address("10.0.0.16"), b"{", 0)
        assert await allocated(store, "web") == ["10.0.0.17"]
        assert not isinstance(await allocate(store, "api"), Allocated)
        nobody = next(holder.ref for address, holder in store.holders() if address == "10.0.0.16")
        assert nobody == ObjectRef("", SERVICES.id, "", "")
        await store.release(nobody)
        assert await allocated(store, "api") == ["10.0.0.16"]


async def test_how_much_is_used_is_told_by_range_and_family(bus: Bus) -> None:
    async with settled(bus, SMALL, SMALL6) as store:
        await allocated(store, "web", BOTH)
        await allocated(store, "api")
        await store.bucket.catch_up()
        assert store.usage() == [(SMALL, "IPv4", 2, 16), (SMALL6, "IPv6", 1, 16)]


def holder(name: str, since: float = 0.0, share: str | None = None, ports: Sequence[str] = ()) -> Holder:
    return Holder(
        cluster="runtime", namespace="shop", name=name, uid=name, since=since, share=share, ports=tuple(ports)
    )


async def note(store: AddressStore, address: str, whose: Sequence[Holder]) -> None:
    await soon(store.write(address, whose, 0))
    await store.bucket.catch_up()


@pytest.mark.parametrize(
    ("held", "claimed", "after", "displaced"),
    [
        pytest.param([], [], [], [], id="nobody"),
        pytest.param([], ["a"], ["a"], [], id="forgotten"),
        pytest.param(["a"], ["a"], ["a"], [], id="known"),
        pytest.param(["a"], [], ["a"], [], id="about-to-show-it"),
        pytest.param(["a"], ["b"], ["b"], ["a"], id="status-against-book"),
        pytest.param(["b"], ["a", "b"], ["b"], ["a"], id="two-claims-and-the-book"),
        pytest.param([], ["b", "a"], ["a"], ["b"], id="two-claims-and-no-book"),
    ],
)
def test_whose_an_address_is_when_all_claims_are_known(
    held: list[str], claimed: list[str], after: list[str], displaced: list[str]
) -> None:
    found = addressclaims.resolve_claims([holder(n) for n in held], [holder(n) for n in claimed])
    assert [h.name for h in found.holders] == after
    assert [h.name for h in found.displaced] == displaced


def test_those_who_share_an_address_all_get_it_back() -> None:
    sharing = [holder("a", share="w", ports=["80/TCP"]), holder("b", share="w", ports=["443/TCP"])]
    assert addressclaims.resolve_claims([], sharing).holders == tuple(sharing)
