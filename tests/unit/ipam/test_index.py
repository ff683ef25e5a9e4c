"""The index is kept up to date change by change, and answers as if it went through all entries."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from bus import subjects
from windowbox.models.loadbalancers import FAMILIES, Family, family
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import Range
from workers.loadbalancer.ipam import entries, ranges
from workers.loadbalancer.ipam.entries import Held, Holder, Waiter
from workers.loadbalancer.ipam.index import AddressIndex

OWN, COMMON = "shoot--own", "shoot--common"
RANGES = [
    Range.model_validate({"prefixes": ["10.0.1.16/32"], "clusters": [OWN]}),
    Range.model_validate({"prefixes": ["10.0.0.16/31", "fd00::10/128"]}),
    Range.model_validate({"prefixes": ["10.0.2.16/31"], "name": "internal"}),
]
ADDRESSES = ("10.0.0.16", "10.0.0.17", "fd00::10", "10.0.1.16", "10.0.2.16", "192.0.2.1")
NAMES = ("", "internal", "unknown")
OFTEN = st.sampled_from([*["10.0.0.16"] * 5, *ADDRESSES])
REFS = tuple(
    ObjectRef(cluster, SERVICES.id, "shop", name)
    for cluster, names in ((RUNTIME, "abc"), (OWN, "a"), (COMMON, "ab"))
    for name in names
)
WORDS = st.sampled_from([None, "one", "one", "two"])
PORTS = st.lists(st.sampled_from(["80/TCP", "443/TCP"]), max_size=2).map(tuple)


def some(of: Iterable[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(sorted(of)), max_size=2, unique=True).map(tuple)


@st.composite
def holders(draw: st.DrawFn) -> Held:
    found = draw(st.lists(st.sampled_from(REFS), max_size=3, unique=True))
    return Held(
        holders=tuple(
            Holder(
                cluster=ref.cluster, namespace=ref.namespace, name=ref.name, uid="1", since=1.0,
                share=draw(WORDS), ports=draw(PORTS), until=draw(st.sampled_from([None, 5.0])),
            )
            for ref in found
        )
    )  # fmt: skip


WAITERS = st.builds(
    Waiter,
    uid=st.just("1"),
    since=st.integers(1, 5).map(float),
    families=st.sampled_from([("IPv4",), ("IPv4", "IPv6"), ()]),
    addresses=st.lists(OFTEN, max_size=1).map(tuple),
    share=WORDS,
    ports=PORTS,
    range=st.sampled_from(["", "", *NAMES]),
)
CHANGES = st.one_of(
    st.tuples(OFTEN, st.one_of(holders(), st.none())),
    st.tuples(st.sampled_from(REFS), st.one_of(WAITERS, st.none())),
)
Change = tuple[str, Held | None] | tuple[ObjectRef, Waiter | None]


@dataclass
class Naive:
    """All entries, and answers that go through all of them."""

    held: dict[str, Held] = field(default_factory=dict)
    waiters: dict[ObjectRef, Waiter] = field(default_factory=dict)

    def without(self, ref: ObjectRef, freed: Collection[str]) -> Naive:
        """The same once a Service has released these addresses and has left the queue."""
        left = {a: Held(holders=held.others(ref)) if a in freed else held for a, held in self.held.items()}
        return Naive(
            {address: held for address, held in left.items() if held.holders},
            {other: waiter for other, waiter in self.waiters.items() if other != ref},
        )

    def has(self, ref: ObjectRef) -> set[str]:
        return {address for address, held in self.held.items() if held.of(ref)}

    def free(self, range_: Range, of: Family) -> int:
        used = [a for a in self.held if family(a) == of and ranges.contains(range_, a)]
        return ranges.size(range_, of) - len(used)

    def queue(self, range_: Range, of: Family) -> list[tuple[float, ObjectRef]]:
        return sorted(
            (waiter.since, ref)
            for ref, waiter in self.waiters.items()
            if of in waiter.families
            and home(ref.cluster, waiter.range) is range_
            and all(family(address) != of for address in self.has(ref))
        )

    def first(self, range_: Range, of: Family) -> list[ObjectRef]:
        return [ref for _, ref in self.queue(range_, of)[: max(0, self.free(range_, of))]]

    def fitting(self, address: str) -> list[ObjectRef]:
        """The first eight that wait for this address, or would share it, and can by now."""
        return [
            ref for _, ref in sorted((w.since, r) for r, w in self.waiters.items() if self.fits(address, r))
        ][:8]

    def fits(self, address: str, ref: ObjectRef) -> bool:
        waiter, held = self.waiters[ref], self.held.get(address, entries.FREE)
        shares = waiter.share and family(address) in waiter.families and held.holders and not held.of(ref)
        mine = holder(ref, waiter.share, waiter.ports)
        return bool(shares or address in waiter.addresses) and not entries.conflict(mine, held.others(ref))

    def servable(self) -> set[ObjectRef]:
        queued = {ref for range_ in RANGES for of in FAMILIES for ref in self.first(range_, of)}
        return queued | {ref for address in ADDRESSES for ref in self.fitting(address)}

    def count(self, cluster: str, of: Family, range_: Range) -> int:
        mine = (a for a, held in self.held.items() if cluster in held.clusters)
        return sum(family(a) == of and ranges.contains(range_, a) for a in mine)

    def woken(self, freed: Collection[str], besides: ObjectRef) -> set[ObjectRef]:
        after, found = self.without(besides, freed), set[ObjectRef]()
        for range_ in RANGES:
            for of in FAMILIES:
                gone = [
                    a for a in freed if a not in after.held and family(a) == of and ranges.contains(range_, a)
                ]
                if gone or range_ in [home(besides.cluster, name) for name in NAMES]:
                    found.update(after.first(range_, of)[-len(gone) - 1 :])
        return found | {ref for address in freed for ref in after.fitting(address)}


def home(cluster: str, name: str) -> Range:
    return RANGES[2] if name == "internal" else RANGES[0] if cluster == OWN else RANGES[1]


def holder(ref: ObjectRef, share: str | None, ports: tuple[str, ...]) -> Holder:
    return Holder(
        cluster=ref.cluster, namespace=ref.namespace, name=ref.name, uid="1", since=0,
        share=share, ports=ports,
    )  # fmt: skip


def change(index: AddressIndex, naive: Naive, what: str | ObjectRef, value: Held | Waiter | None) -> None:
    if isinstance(what, str):
        naive.held.pop(what, None)
        if isinstance(value, Held) and value.holders:
            naive.held[what] = value
        index.apply(subjects.of_address(what), value.encoded() if value else None)
    else:
        naive.waiters.pop(what, None)
        if isinstance(value, Waiter):
            naive.waiters[what] = value
        index.apply(subjects.of_waiting(what), value.encoded() if value else None)


@given(
    changes=st.lists(CHANGES, min_size=5, max_size=40),
    quota=st.sampled_from([None, 2]),
    freed=some(ADDRESSES),
    word=WORDS,
    ports=PORTS,
)
def test_the_index_answers_as_if_it_walked_everything(
    changes: list[Change], quota: int | None, freed: tuple[str, ...], word: str | None, ports: tuple[str, ...]
) -> None:
    index, naive = AddressIndex(RANGES, quota), Naive()
    for what, value in changes:
        change(index, naive, what, value)
        assert set(index.servable()) == naive.servable()
        assert dict(index.waiters) == naive.waiters
        for ref in REFS:
            assert index.holdings.of(ref) == naive.has(ref)
            assert set(index.wake(freed, ref)) == naive.woken(freed, ref)
            assert index.is_servable(ref) == (
                ref in naive.waiters
                and (
                    any(ref in naive.first(range_, of) for range_ in RANGES for of in FAMILIES)
                    or any(naive.fits(address, ref) for address in ADDRESSES)
                )
            )
            mine = holder(ref, word, ports)
            assert index.joinable(mine.group, mine.ports) == sorted(
                a for a, held in naive.held.items() if not entries.conflict(mine, held.holders)
            )
            for of, name in itertools.product(FAMILIES, NAMES):
                range_ = home(ref.cluster, name)
                assert index.free(ref.cluster, of, name) == naive.free(range_, of)
                ahead = [one for one in naive.queue(range_, of) if one < (3.0, ref) and one[1] != ref]
                assert index.ahead(ref, of, 3.0, name) == len(ahead)
        for cluster, of, name in itertools.product((RUNTIME, OWN, COMMON), FAMILIES, NAMES):
            range_ = home(cluster, name)
            shared = cluster == COMMON or (cluster == OWN and name == "internal")
            most = quota or ((ranges.size(range_, of) + 1) // 2 if shared else 1000)
            assert index.below_quota(cluster, of, name) == (
                naive.count(cluster, of, range_) < most or not most
            )
        assert index.holdings.clusters() == {c for held in naive.held.values() for c in held.clusters}
        assert {a for a, _ in index.holdings.kept()} == {
            a for a, held in naive.held.items() if any(one.until for one in held.holders)
        }


def test_a_sharer_may_join_its_own_address_again() -> None:
    index, naive = AddressIndex(RANGES), Naive()
    web, api, other = REFS[:3]
    three = [holder(web, "one", ("80/TCP",)), holder(api, "one", ("443/TCP",)), holder(other, "one", ())]
    wants = Waiter(
        uid="1", since=1, addresses=("10.0.0.16",), share="one", ports=("80/TCP", "443/TCP")
    )  # fmt: skip
    change(index, naive, "10.0.0.16", Held(holders=tuple(three)))
    change(index, naive, web, wants)
    assert index.servable() == []
    assert index.wake(["10.0.0.16"], api) == [web]
    change(index, naive, "10.0.0.16", Held(holders=(three[0], three[2])))
    assert index.servable() == [web]


def test_a_sharing_key_does_not_skip_the_queue() -> None:
    index, naive = AddressIndex(RANGES), Naive()
    first, second, sharer = REFS[:3]
    for number, ref in enumerate((first, second)):
        change(index, naive, f"10.0.0.{16 + number}", Held(holders=(holder(ref, "one", ("80/TCP",)),)))
    wants = Waiter(uid="1", since=2, families=("IPv4",), ports=("80/TCP",))
    change(index, naive, sharer, wants.model_copy(update={"share": "one"}))
    change(index, naive, REFS[4], wants.model_copy(update={"since": 1.0}))
    assert index.wake(["10.0.0.16"], first) == [REFS[4]]


def test_many_that_wait_cost_one_of_them_little() -> None:
    index = AddressIndex([Range.model_validate({"prefixes": ["10.0.0.0/24"]})], quota=254)
    waiting = [ObjectRef(f"shoot--{n % 50}", SERVICES.id, "shop", f"waits-{n}") for n in range(5000)]
    for number in range(1, 255):
        ref = ObjectRef(f"shoot--{number % 50}", SERVICES.id, "shop", f"holds-{number}")
        held = Held(holders=(holder(ref, "one", ("80/TCP",)),))
        index.apply(subjects.of_address(f"10.0.0.{number}"), held.encoded())
    for number, ref in enumerate(waiting):
        waiter = Waiter(uid="1", since=number, families=("IPv4",), share="one", ports=("80/TCP",))
        index.apply(subjects.of_waiting(ref), waiter.encoded())
    started = time.process_time()
    for number in range(1, 100):
        ref, is_free = waiting[50 * number], number % 2
        index.apply(subjects.of_address("10.0.0.7"), None if is_free else held.encoded())
        assert index.joinable((ref.cluster, "one"), ["80/TCP"]) == []
        assert index.ahead(ref, "IPv4", 50.0 * number) == 50 * number
        assert index.below_quota(ref.cluster, "IPv4")
        assert not index.is_servable(ref)
        assert index.wake([], ref) == index.servable() == ([waiting[0]] if is_free else [])
    assert (time.process_time() - started) / 100 < 0.02  # 2 ms are aimed at
