"""Adoption: which claims to addresses are believed when allocations are restored."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from windowbox.models.loadbalancers import Family, family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam.entries import Holder
from workers.loadbalancer.ipam.index import AddressIndex
from workers.loadbalancer.ipam.results import AddressRequest


class Claim(NamedTuple):
    """The addresses of a Service, as far as they are known without the address store."""

    ref: ObjectRef
    uid: str
    addresses: tuple[str, ...]
    """Those that an edge says it has: they are its own."""
    ports: tuple[str, ...] = ()
    share: str | None = None
    shown: tuple[str, ...] = ()
    """Others that its status shows, which its owner may have written."""
    families: tuple[Family, ...] = ()
    """Those that it asks for: of each it gets one address by its status alone."""
    created: str = ""

    def holder(self, since: float) -> Holder:
        """Its entry in the address store."""
        return AddressRequest(self.ref, self.uid, (), share=self.share, ports=self.ports).holder(since)


def by_address(claims: Iterable[Claim], index: AddressIndex) -> dict[str, list[Holder]]:
    """Whose each address is by what an edge says."""
    now = time.time()
    found: dict[str, list[Holder]] = {}
    for claim in claims:
        for address in claim.addresses:
            if index.gives(claim.ref.cluster, address):
                found.setdefault(address, []).append(claim.holder(now))
    return found


def only_shown(claims: Sequence[Claim], index: AddressIndex) -> Iterator[tuple[Claim, str]]:
    """Claims by status alone, in the order in which they are tried, one for each family of a Service.

    Uncontested claims come first, then those of older Services.
    """
    found = [
        (claim, address)
        for claim in claims
        for of in claim.families
        if not any(family(one) == of for one in claim.addresses)
        for address in _first(claim, of, index)
    ]
    contested = Counter(address for _, address in found)
    yield from sorted(found, key=lambda one: (contested[one[1]] > 1, one[0].created, one[0].ref))


def _first(claim: Claim, of: Family, index: AddressIndex) -> list[str]:
    fitting = (a for a in claim.shown if family(a) == of and index.gives(claim.ref.cluster, a))
    return list(fitting)[:1]
