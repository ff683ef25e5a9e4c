"""An index of the address store in memory: by address, by Service, by range."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bus import subjects
from windowbox.models.lbsettings import Range, range_for
from windowbox.models.loadbalancers import Family, family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam import entries, ranges
from workers.loadbalancer.ipam.entries import FREE, Held, Holder, Marker, Waiter

logger = logging.getLogger(__name__)

MARKER = "book"

_FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")

RangeKey = tuple[int, Family]
"""The addresses of one range and family: the place of the range among all, and the family."""


class Usage(NamedTuple):
    """How much of a range is allocated."""

    range: str
    family: Family
    used: int
    total: int


class AddressIndex:
    """Holders and waiting Services, as of the last change of the bucket."""

    def __init__(self, all_ranges: Sequence[Range], quota: int | None = None) -> None:
        self._ranges = tuple(all_ranges)
        self._quota = quota
        self._held: dict[str, Held] = {}
        self._of: dict[ObjectRef, set[str]] = defaultdict(set)
        self._used: dict[RangeKey, set[str]] = defaultdict(set)
        self._homes: dict[str, int | None] = {}
        self.waiters: dict[ObjectRef, Waiter] = {}
        self.marker: Marker | None = None

    def apply(self, key: str, value: bytes | None) -> set[ObjectRef]:
        """Apply a change of the bucket. Returns the Services that have or had the address in question."""
        try:
            if (address := subjects.address(key)) is not None:
                held = entries.read(value)
                holders = {holder.ref for holder in (*self.held(address).holders, *held.holders)}
                self._note(address, held)
                return holders
            if (ref := subjects.waiting(key)) is not None:
                self.waiters.pop(ref, None)
                if value:
                    self.waiters[ref] = Waiter.model_validate_json(value)
            elif key == MARKER:
                self.marker = Marker.model_validate_json(value) if value else None
        except ValueError as error:
            # An entry that another version wrote must not end this process.
            logger.error("address store: %s is skipped: %s", key, error)
        return set()

    def held(self, address: str) -> Held:
        return self._held.get(address, FREE)

    def addresses(self, ref: ObjectRef) -> set[str]:
        """The addresses that a Service of this name holds."""
        return set(self._of.get(ref, ()))

    def holders(self) -> Iterator[tuple[str, Holder]]:
        for address, held in list(self._held.items()):
            for holder in held.holders:
                yield address, holder

    def range_of(self, cluster: str) -> Range | None:
        home = self._home(cluster)
        return None if home is None else self._ranges[home]

    def gives(self, cluster: str, address: str) -> bool:
        """Whether the range of this cluster has the address."""
        range_ = self.range_of(cluster)
        return range_ is not None and ranges.contains(range_, address)

    def total(self, cluster: str, of: Family) -> int:
        """How many addresses there are for the Services of this cluster."""
        key = self._range_key(cluster, of)
        return self._total(key) if key else 0

    def free(self, cluster: str, of: Family) -> int:
        """How many addresses a Service of this cluster could get."""
        key = self._range_key(cluster, of)
        return self._total(key) - len(self._used.get(key, ())) if key else 0

    def ahead(self, ref: ObjectRef, of: Family, since: float) -> int:
        """How many Services have waited longer for an address of the same range as `ref`."""
        key = self._range_key(ref.cluster, of)
        return sum(1 for other in self._queue(key) if other[1] != ref and other < (since, ref)) if key else 0

    def room(self, ref: ObjectRef, of: Family, since: float) -> bool:
        """Whether more is free than those want who have waited longer than `ref`."""
        return self.free(ref.cluster, of) > self.ahead(ref, of, since)

    def below_quota(self, cluster: str, of: Family) -> bool:
        """Whether Services of this cluster may get one more address."""
        if self._quota is None:
            return True
        theirs = {a for a, holder in self.holders() if holder.cluster == cluster and family(a) == of}
        return len(theirs) < self._quota

    @property
    def quota(self) -> int | None:
        return self._quota

    def servable(self, freed: Sequence[str] = (), besides: ObjectRef | None = None) -> list[ObjectRef]:
        """Services that wait although there is an address for them.

        `freed` are free and `besides` has left the queue, though the events of that may not have come yet.
        """
        if not self.waiters:
            return []
        keys = {p for r in self.waiters for f in _FAMILIES if (p := self._range_key(r.cluster, f))}
        found: list[ObjectRef] = []
        for key in sorted(keys):
            still = {a for a in self._used.get(key, ()) if a not in freed}
            queue = [ref for _, ref in self._queue(key) if ref != besides]
            found += queue[: self._total(key) - len(still)]
        for ref, waiter in self.waiters.items():
            if ref != besides and any(
                address in freed or self._can_join(address, ref, waiter)
                for address in (*waiter.addresses, *self._shared(ref, waiter))
            ):
                found.append(ref)
        return list(dict.fromkeys(found))

    def usage(self) -> list[Usage]:
        return [
            Usage(",".join(map(str, one.of_family(of))), of, len(self._used.get((at, of), ())), total)
            for at, one in enumerate(self._ranges)
            for of in _FAMILIES
            if (total := ranges.size(one, of))
        ]

    def _can_join(self, address: str, ref: ObjectRef, waiter: Waiter) -> bool:
        """Whether all holders of the address would share it with `ref`."""
        return entries.conflict(waiter.holder(ref), self.held(address).others(ref)) is None

    def _shared(self, ref: ObjectRef, waiter: Waiter) -> list[str]:
        """Addresses that a Service which takes any might share."""
        if not waiter.share:
            return []
        mine = self.addresses(ref)
        return [a for a in self._held if family(a) in waiter.families and a not in mine]

    def _queue(self, key: RangeKey) -> list[tuple[float, ObjectRef]]:
        """Services that wait for any address of a range and family, the longest waiting first."""
        return sorted(
            (waiter.since, ref)
            for ref, waiter in self.waiters.items()
            if key[1] in waiter.families
            and self._range_key(ref.cluster, key[1]) == key
            and all(family(address) != key[1] for address in self._of.get(ref, ()))
        )

    def _note(self, address: str, held: Held) -> None:
        before = self._held.pop(address, FREE)
        for holder in before.holders:
            self._of[holder.ref].discard(address)
            if not self._of[holder.ref]:
                del self._of[holder.ref]
        if held.holders:
            self._held[address] = held
        for holder in held.holders:
            self._of[holder.ref].add(address)
        for at, one in enumerate(self._ranges):
            if bool(before.holders) != bool(held.holders) and ranges.contains(one, address):
                used = self._used[at, family(address)]
                (used.add if held.holders else used.discard)(address)

    def _range_key(self, cluster: str, of: Family) -> RangeKey | None:
        home = self._home(cluster)
        return None if home is None else (home, of)

    def _home(self, cluster: str) -> int | None:
        if cluster not in self._homes:
            range_ = range_for(cluster, self._ranges)
            self._homes[cluster] = None if range_ is None else self._ranges.index(range_)
        return self._homes[cluster]

    def _total(self, key: RangeKey) -> int:
        return ranges.size(self._ranges[key[0]], key[1])
