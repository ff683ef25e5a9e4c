"""An index of the address store in memory: by address, by Service, by range, by cluster and sharing key."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from bus import subjects
from windowbox.models.loadbalancers import FAMILIES, Family, family
from windowbox.models.refs import RUNTIME, ObjectRef
from windowbox.settings.lbsettings import Range, range_for
from workers.loadbalancer.ipam import entries, ranges
from workers.loadbalancer.ipam.entries import Group, Marker, Waiter
from workers.loadbalancer.ipam.holdings import Holdings, Multimap, RangeKey, Space, Waiters

logger = logging.getLogger(__name__)

MARKER = "book"

MOST_WAITING = 100
"""Services of one cluster that wait at once (a few more if they come together). Others are rejected, and
requeued when one of these has left."""
MOST_BYTES = 1 << 20
"""The bytes of one cluster's entries on the bus: 3,000 addresses, and a 64th of the bucket. Its other
Services are refused, so that it does not fill the bucket for all."""
_AT_ONCE = 8
"""Services that are requeued at once for one released address. One of them gets it."""

Limit = tuple[str, RangeKey | None]
"""A limit of a cluster: its quota of a range's addresses, or (None) its number of waiting Services."""


class Usage(NamedTuple):
    """How much of a range is allocated."""

    range: str
    family: Family
    used: int
    total: int


class AddressIndex:
    """Holders and waiting Services, as of the last change of the bucket.

    Kept up to date change by change: no query goes through all holders, or all waiting Services.
    """

    def __init__(self, all_ranges: Sequence[Range], quota: int | None = None) -> None:
        self._ranges = tuple(all_ranges)
        self._quota = quota
        self._totals = {
            (at, of): ranges.size(one, of) for at, one in enumerate(self._ranges) for of in FAMILIES
        }
        self._names = sorted({one.name for one in self._ranges} | {""})
        self._used: dict[RangeKey, set[str]] = defaultdict(set)
        self._counts: Counter[tuple[str, RangeKey]] = Counter()
        """How many addresses of a range Services of a cluster hold."""
        self._homes: dict[tuple[str, str], int | None] = {}
        self._fits: Multimap[str, ObjectRef] = Multimap()
        self.holdings = Holdings()
        self.waiters = Waiters()
        self._space = Space()
        self.reached: set[Limit] = set()
        """The limits that clusters have reached."""
        self.marker: Marker | None = None

    def apply(self, key: str, value: bytes | None) -> set[ObjectRef]:
        """Apply a change of the bucket. Returns the present and former holders of the changed address."""
        try:
            if (address := subjects.address(key)) is not None:
                held, before = entries.read(value), self.holdings.held(address)
                self.holdings.put(address, held)
                # All holders of an address are of one cluster.
                self._space.put(key, min(held.clusters or before.clusters, default=""), value)
                range_key = self._key_of(address)
                if range_key:
                    used = self._used[range_key]
                    (used.add if held.holders else used.discard)(address)
                    self._counts.subtract((cluster, range_key) for cluster in before.clusters)
                    self._counts.update((cluster, range_key) for cluster in held.clusters)
                refs = {holder.ref for holder in (*before.holders, *held.holders)}
                for ref in refs & self.waiters.keys():
                    self._enqueue(ref)
                for ref in self._interested(address, before.groups | held.groups):
                    self._fit(address, ref)
                for cluster in (before.clusters | held.clusters) if range_key else ():
                    self._check_limit((cluster, range_key))
                return refs
            if (waiting := subjects.waiting(key)) is not None:
                self._space.put(key, waiting.cluster, value)
                self._set_waiter(waiting, None)
                if value:
                    self._set_waiter(waiting, Waiter.model_validate_json(value))
            elif key == MARKER:
                self.marker = Marker.model_validate_json(value) if value else None
        except ValueError as error:
            # An entry that another version of windowbox wrote must not end this process.
            logger.error("address store: %s is skipped: %s", key, error)
        return set()

    # Ranges and limits.

    def range_of(self, cluster: str, name: str = "") -> Range | None:
        """Its range of this name; without one, its usual range."""
        home = self._home(cluster, name)
        return None if home is None else self._ranges[home]

    def gives(self, cluster: str, address: str, name: str | None = None) -> bool:
        """Whether the range of this cluster and name has the address; None: one of all its ranges."""
        names = self._names if name is None else [name]
        found = (self.range_of(cluster, one) for one in names)
        return any(range_ is not None and ranges.contains(range_, address) for range_ in found)

    def total(self, cluster: str, of: Family, name: str = "") -> int:
        """Addresses in the range of this cluster, free or not."""
        key = self._range_key(cluster, of, name)
        return self._totals[key] if key else 0

    def free(self, cluster: str, of: Family, name: str = "") -> int:
        """Addresses that are free for Services of this cluster."""
        key = self._range_key(cluster, of, name)
        return self._free(key) if key else 0

    def quota(self, cluster: str, of: Family, name: str = "") -> int | None:
        """The most addresses for Services of this cluster; None: all of its range."""
        key = self._range_key(cluster, of, name)
        return self._quota_of(cluster, key) if key else self._quota

    def _quota_of(self, cluster: str, key: RangeKey) -> int | None:
        if self._quota is not None:
            return self._quota
        if not self._ranges[key[0]].is_shared or cluster == RUNTIME:
            return None
        # Half of a shared range by default, so that one cluster cannot starve the others.
        return (self._totals[key] + 1) // 2

    def places(self, limit: Limit) -> int:
        """How many more are possible until the cluster reaches the limit."""
        cluster, key = limit
        if key is None:
            return MOST_WAITING - self.waiters.count(cluster)
        quota = self._quota_of(cluster, key)
        return (self._totals[key] if quota is None else quota) - self._counts[cluster, key]

    def below_quota(self, cluster: str, of: Family, name: str = "") -> bool:
        """Whether Services of this cluster may get one more address."""
        key = self._range_key(cluster, of, name)
        return key is None or (cluster, key) not in self.reached

    def full(self, cluster: str) -> bool:
        """Whether the cluster's entries take all the bytes that a cluster may have."""
        return cluster != RUNTIME and self._space.used(cluster) >= MOST_BYTES

    def usage(self) -> list[Usage]:
        return [
            Usage(",".join(map(str, one.of_family(of))), of, len(self._used.get((at, of), ())), total)
            for at, one in enumerate(self._ranges)
            for of in FAMILIES
            if (total := self._totals[at, of])
        ]

    # The queue.

    def ahead(self, ref: ObjectRef, of: Family, since: float, name: str = "") -> int:
        """How many Services have waited longer for an address of the same range as `ref`."""
        key = self._range_key(ref.cluster, of, name)
        return self.waiters.ahead(key, ref, since) if key else 0

    def room(self, ref: ObjectRef, of: Family, since: float, name: str = "") -> bool:
        """Whether more addresses are free than Services have waited longer than `ref`."""
        return self.free(ref.cluster, of, name) > self.ahead(ref, of, since, name)

    def joinable(self, group: Group | None, ports: Collection[str]) -> list[str]:
        """Addresses that all holders would share with a Service of this group."""
        shared = self.holdings.shared(group)
        return sorted(address for address in shared if self.holdings.admits(address, group, ports))

    def is_servable(self, ref: ObjectRef) -> bool:
        """Whether a Service waits although there is an address for it."""
        waiter = self.waiters.get(ref)
        if waiter is None:
            return False
        return any(
            self.waiters.ahead(key, ref, waiter.since) < self._free(key)
            for key in self.waiters.queues_of(ref)
        ) or any(ref in self._fits[address] for address in self._candidates(ref, waiter))

    def servable(self) -> list[ObjectRef]:
        """Services that wait although there is an address for them."""
        found = [ref for key in self.waiters.queues() for ref in self.waiters.first(key, self._free(key))]
        for address in sorted(self._fits):
            found += self.waiters.longest(self._fits[address], _AT_ONCE)
        return list(dict.fromkeys(found))

    def wake(self, freed: Collection[str], besides: ObjectRef) -> list[ObjectRef]:
        """Services to requeue now that `besides` has released `freed`, and has left the queue.

        This index may not have received these changes yet.
        """
        found: list[ObjectRef] = []
        theirs = self.holdings.of(besides)
        # Free, or held by `besides` alone.
        available = {a for a in freed if len(self.holdings.held(a).holders) == (a in theirs)}
        keys = [self._range_key(besides.cluster, of, name) for of in FAMILIES for name in self._names]
        keys += [self._key_of(a) for a in available]
        for key in sorted({key for key in keys if key}):
            released = {address for address in available if self._key_of(address) == key}
            free = self._free(key) + len(released & self._used.get(key, set()))
            # One more than released: two processes that release at once may wake the same Service.
            found += self.waiters.last_of_first(key, free, len(released) + 1, besides)
        for address in sorted(freed):
            groups = set() if address in available else self.holdings.held(address).groups
            waiting = self._interested(address, groups) - {besides}
            suited = (ref for ref in waiting if self._suits(address, ref, besides))
            found += self.waiters.longest(suited, _AT_ONCE)
        return list(dict.fromkeys(found))

    # Changes.

    def _set_waiter(self, ref: ObjectRef, waiter: Waiter | None) -> None:
        before = self.waiters.get(ref)
        for address in self._candidates(ref, before) if before else ():
            self._fits.discard(address, ref)
        self.waiters.put(ref, waiter)
        if waiter:
            self._enqueue(ref)
            for address in self._candidates(ref, waiter):
                self._fit(address, ref)
        self._check_limit((ref.cluster, None))

    def _enqueue(self, ref: ObjectRef) -> None:
        """Put a waiting Service into the queue of each family of which it takes any address."""
        has = {family(address) for address in self.holdings.of(ref)}
        waiter = self.waiters[ref]
        found = (self._range_key(ref.cluster, of, waiter.range) for of in {*waiter.families} - has)
        self.waiters.enqueue(ref, {key for key in found if key})

    def _check_limit(self, limit: Limit) -> None:
        cluster, key = limit
        bounded = key is None or self._quota_of(cluster, key) is not None
        (self.reached.add if bounded and self.places(limit) <= 0 else self.reached.discard)(limit)

    # Candidates: addresses that a waiting Service might get, besides those of the queues that it is in.

    def _candidates(self, ref: ObjectRef, waiter: Waiter) -> set[str]:
        """Requested addresses, and those of Services with its sharing key."""
        shared = self.holdings.shared(waiter.group(ref)) if waiter.families else ()
        return {*waiter.addresses, *shared}

    def _interested(self, address: str, groups: set[Group]) -> set[ObjectRef]:
        """The Services that have the address among their candidates, if these groups hold it."""
        return {*self.waiters.wanting(address), *self.waiters.sharing(groups)}

    def _suits(self, address: str, ref: ObjectRef, besides: ObjectRef | None = None) -> bool:
        """Whether a candidate is free for the Service, or all holders but `besides` would share it."""
        waiter, but = self.waiters[ref], (ref, besides) if besides else (ref,)
        group = waiter.group(ref)
        joins = (
            family(address) in waiter.families
            and address in self.holdings.shared(group)
            and address not in self.holdings.of(ref)
        )
        wanted = joins or address in waiter.addresses
        return wanted and self.holdings.admits(address, group, waiter.ports, but)

    def _fit(self, address: str, ref: ObjectRef) -> None:
        (self._fits.add if self._suits(address, ref) else self._fits.discard)(address, ref)

    def _free(self, key: RangeKey) -> int:
        return self._totals[key] - len(self._used.get(key, ()))

    def _range_key(self, cluster: str, of: Family, name: str) -> RangeKey | None:
        home = self._home(cluster, name)
        return None if home is None else (home, of)

    def _home(self, cluster: str, name: str) -> int | None:
        # Others have the usual range: a tenant may think of any number of them.
        place = cluster, name if name in self._names else ""
        if place not in self._homes:
            range_ = range_for(cluster, self._ranges, name)
            self._homes[place] = None if range_ is None else self._ranges.index(range_)
        return self._homes[place]

    def _key_of(self, address: str) -> RangeKey | None:
        """The range that has the address."""
        of = family(address)
        return next(((at, of) for at, one in enumerate(self._ranges) if ranges.contains(one, address)), None)
