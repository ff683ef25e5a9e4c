"""Adoption: which claims to addresses are believed when allocations are restored."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bus.transport.connection import WrongSequence
from windowbox.errors import Conflict
from windowbox.models.loadbalancers import Family, family
from windowbox.models.refs import RUNTIME, ObjectRef
from workers.loadbalancer.ipam import entries
from workers.loadbalancer.ipam.entries import Holder
from workers.loadbalancer.ipam.index import MARKER, AddressIndex
from workers.loadbalancer.ipam.results import AddressRequest, Released
from workers.loadbalancer.ipam.store import ATTEMPTS, AddressStore


class Claim(NamedTuple):
    """The addresses of a Service, as far as they are known without the address store."""

    ref: ObjectRef
    uid: str
    addresses: tuple[str, ...]
    """Addresses that an edge serves for it: they are its own."""
    ports: tuple[str, ...] = ()
    share: str | None = None
    shown: tuple[str, ...] = ()
    """Other addresses in its status, which its owner may have written."""
    families: tuple[Family, ...] = ()
    """The families that it asks for: by its status alone it gets one address of each."""
    reported: tuple[str, ...] = ()
    """Those of them that we have reported: its owner cannot write reports."""
    range: str = ""
    """The name of the range that it asks for."""

    def holder(self, since: float) -> Holder:
        """Its entry in the address store."""
        return AddressRequest(self.ref, self.uid, (), share=self.share, ports=self.ports).holder(since)


async def adopt_all(store: AddressStore, claims: Iterable[Claim]) -> Released:
    """Allocate the claimed addresses, and mark the store as complete.

    Returns the Services to requeue: those whose address turned out to be another's, and those that waited.
    """
    await store.ready()
    await store.bucket.catch_up()
    before = store.bucket.readings, store.doubt
    claims, displaced = list(claims), list[Holder]()
    now = time.time()
    served: dict[str, list[Holder]] = {}
    for claim in claims:
        for address in claim.addresses:
            if store.index.gives(claim.ref.cluster, address):
                served.setdefault(address, []).append(claim.holder(now))
    for address, claimed in served.items():
        displaced += await _adopt_served(store, address, claimed)
    await store.bucket.catch_up()
    for claim, address in _by_trust(_only_shown(claims, store.index)):
        await _adopt_shown(store, claim, address)
    marker = await store.bucket.get(MARKER)
    if (store.bucket.readings, store.doubt) != before:
        raise Conflict("the bus lost the address store during adoption")
    await store.mark_complete(marker.sequence)
    return Released(wake=tuple(dict.fromkeys([*(one.ref for one in displaced), *store.index.waiters])))


async def _adopt_served(store: AddressStore, address: str, claimed: Sequence[Holder]) -> tuple[Holder, ...]:
    """Allocate an address to the Services for which an edge serves it. Returns the holders that lose it."""
    for _ in range(ATTEMPTS):
        held, sequence = await store.read(address)
        whose = resolve_claims(held.holders, claimed)
        if whose.holders == held.holders:
            return whose.displaced
        with contextlib.suppress(WrongSequence):
            await store.write(address, whose.holders, sequence)
            return whose.displaced
    raise Conflict(f"{address}: others write to it all the time")


class ResolvedClaims(NamedTuple):
    """The holders of an address, once all claims are known."""

    holders: tuple[Holder, ...]
    displaced: tuple[Holder, ...]


def resolve_claims(held: Sequence[Holder], claimed: Sequence[Holder]) -> ResolvedClaims:
    """The address belongs to the Services that claim it.

    If two claim it, the store decides, then the name. A holder without a claim may be about to be served: it
    stays, unless it conflicts with a claim.
    """
    before = {holder.uid: holder for holder in held}
    ordered = sorted(claimed, key=lambda c: (c.uid not in before, c.namespace, c.name))
    silent = [holder for holder in held if all(holder.ref != claim.ref for claim in claimed)]
    holders: list[Holder] = []
    displaced: list[Holder] = []
    for one in [*(before.get(c.uid, c) for c in ordered), *silent]:
        (displaced if entries.conflict(one, holders) else holders).append(one)
    return ResolvedClaims(tuple(holders), tuple(displaced))


def contested(claims: Iterable[Claim], index: AddressIndex) -> set[str]:
    """Addresses that several clusters claim by the status of their Services alone."""
    clusters: dict[str, set[str]] = defaultdict(set)
    for claim, address in _only_shown(claims, index):
        clusters[address].add(claim.ref.cluster)
    return {address for address, found in clusters.items() if len(found) > 1}


def _by_trust(found: Iterable[tuple[Claim, str]]) -> list[tuple[Claim, str]]:
    """In the order to try them. Nothing that the owner of a Service writes into it moves it forward.

    Uncontested ones come first: they are all that a thief of many addresses cannot spoil.
    """
    by_address: dict[str, list[Claim]] = defaultdict(list)
    for claim, address in found:
        by_address[address].append(claim)
    return sorted(
        ((claim, address) for address, claims in by_address.items() for claim in claims),
        key=lambda one: (
            len(by_address[one[1]]) > 1,
            one[0].ref.cluster != RUNTIME,
            one[1] not in one[0].reported,
            one[0].ref,
        ),
    )


def _only_shown(claims: Iterable[Claim], index: AddressIndex) -> Iterator[tuple[Claim, str]]:
    """Claims by status alone: one address of each family that no edge names for the Service."""
    for claim in claims:
        for of in claim.families:
            if any(family(address) == of for address in claim.addresses):
                continue
            given = (
                a for a in claim.shown if family(a) == of and index.gives(claim.ref.cluster, a, claim.range)
            )
            yield from ((claim, address) for address in list(given)[:1])


async def _adopt_shown(store: AddressStore, claim: Claim, address: str) -> None:
    """Allocate an address that only the Service's own status shows, unless something speaks against it."""
    of, index = family(address), store.index
    if any(family(one) == of for one in index.holdings.of(claim.ref)):
        return
    if store.is_complete() and not index.room(claim.ref, of, time.time(), claim.range):
        return  # others may have waited longer
    if index.full(claim.ref.cluster) or not index.below_quota(claim.ref.cluster, of, claim.range):
        return
    for _ in range(ATTEMPTS):
        held, sequence = await store.read(address)
        holder = claim.holder(time.time())
        if entries.conflict(holder, held.holders):
            return
        with contextlib.suppress(WrongSequence):
            await store.write(address, (*held.holders, holder), sequence)
            await store.bucket.catch_up()
            return
