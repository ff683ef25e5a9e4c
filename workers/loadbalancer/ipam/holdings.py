"""Indexes in memory: the holders of each address, and waiting Services in order of waiting.

Each change updates them: only an iteration goes through all addresses, holders or waiting Services.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Set
from typing import Generic, TypeVar

from windowbox.models.loadbalancers import Family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam.entries import FREE, Group, Held, Holder, Waiter

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

MOST_SHARING = 250
"""Services that share one address. With 250 ports each they just fit into one message of the bus."""
_KEPT = 3600.0
"""Seconds for which the bus keeps a deleted key: see `bus.transport.buckets`."""
_OVERHEAD = 100
"""Bytes of a stored message besides its key and its value."""

RangeKey = tuple[int, Family]
"""The addresses of one range and family: the position of the range among all, and the family."""

_Place = tuple[float, ObjectRef]


class Multimap(Generic[K, V]):
    """Sets by key. A key without values is not kept."""

    def __init__(self) -> None:
        self._sets: dict[K, set[V]] = {}

    def __getitem__(self, key: K) -> Set[V]:
        return self._sets.get(key, frozenset())

    def __iter__(self) -> Iterator[K]:
        return iter(self._sets)

    def add(self, key: K, value: V) -> None:
        self._sets.setdefault(key, set()).add(value)

    def discard(self, key: K, value: V) -> None:
        values = self._sets.get(key)
        if values:
            values.discard(value)
            if not values:
                del self._sets[key]


class Holdings:
    """All addresses in use."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._of: Multimap[ObjectRef, str] = Multimap()
        self._shared: Multimap[Group, str] = Multimap()
        self._crowds: dict[str, _Crowd] = {}
        self._clusters: Counter[str] = Counter()
        """How many addresses Services of each cluster hold."""
        self._kept: set[str] = set()

    def put(self, address: str, held: Held) -> None:
        """Set the holders of an address."""
        before = self.held(address)
        self._held.pop(address, None)
        self._crowds.pop(address, None)
        self._kept.discard(address)
        for holder in before.holders:
            self._of.discard(holder.ref, address)
        for group in before.groups:
            self._shared.discard(group, address)
        for cluster in before.clusters:
            self._clusters[cluster] -= 1
        for holder in held.holders:
            self._of.add(holder.ref, address)
        for group in held.groups:
            self._shared.add(group, address)
        for cluster in held.clusters:
            self._clusters[cluster] += 1
        if held.holders:
            self._held[address] = held
        if len(held.holders) > 1:
            self._crowds[address] = _Crowd(held)
        if any(holder.until is not None for holder in held.holders):
            self._kept.add(address)

    def held(self, address: str) -> Held:
        return self._held.get(address, FREE)

    def of(self, ref: ObjectRef) -> Set[str]:
        """The addresses that a Service of this name holds."""
        return self._of[ref]

    def shared(self, group: Group | None) -> Set[str]:
        """Addresses that Services of this group hold."""
        return self._shared[group] if group else frozenset()

    def clusters(self) -> set[str]:
        """The clusters whose Services hold addresses."""
        return {cluster for cluster, count in self._clusters.items() if count}

    def services(self) -> list[ObjectRef]:
        """The Services that hold addresses."""
        return list(self._of)

    def kept(self) -> list[tuple[str, Held]]:
        """Addresses that are kept for a Service which is no load balancer for now."""
        return [(address, self._held[address]) for address in self._kept]

    def __iter__(self) -> Iterator[tuple[str, Holder]]:
        for address, held in list(self._held.items()):
            for holder in held.holders:
                yield address, holder

    def admits(
        self, address: str, group: Group | None, ports: Collection[str], but: Collection[ObjectRef] = ()
    ) -> bool:
        """Whether all holders, except for `but`, would share the address with a Service of this group."""
        if crowd := self._crowds.get(address):
            return crowd.admits(group, ports, but)
        others = [holder for holder in self.held(address).holders if holder.ref not in but]
        return all(group and holder.group == group and not {*ports} & {*holder.ports} for holder in others)


class _Crowd:
    """The holders of a shared address. There may be thousands: queries do not go through them."""

    def __init__(self, held: Held) -> None:
        self._holders = {holder.ref: holder for holder in held.holders}
        self._groups = Counter(holder.group for holder in held.holders)
        self._ports = Counter(port for holder in held.holders for port in set(holder.ports))

    def admits(self, group: Group | None, ports: Collection[str], but: Collection[ObjectRef]) -> bool:
        absent = [self._holders[ref] for ref in {*but} if ref in self._holders]
        others = len(self._holders) - len(absent)
        if not others:
            return True
        if others >= MOST_SHARING:
            return False
        if not group or self._groups[group] - sum(one.group == group for one in absent) < others:
            return False
        theirs = [{*one.ports} for one in absent]
        return all(self._ports[port] == sum(port in some for some in theirs) for port in ports)


class Space:
    """The bytes of each cluster's keys on the bus. A deleted key counts as long as the bus keeps it."""

    def __init__(self) -> None:
        self._charged: dict[str, tuple[str, int]] = {}
        self._used: Counter[str] = Counter()
        self._deleted: dict[str, float] = {}
        """When each key was deleted, the earliest first."""

    def put(self, key: str, cluster: str, value: bytes | None) -> None:
        """Charge a changed key to a cluster; None: it is deleted."""
        if not value and key not in self._charged:
            return
        self._forget(key)
        self._charged[key] = cluster, len(key) + len(value or b"") + _OVERHEAD
        self._used[cluster] += self._charged[key][1]
        if not value:
            self._deleted[key] = time.monotonic()
        self._forget_expired()

    def used(self, cluster: str) -> int:
        self._forget_expired()
        return self._used[cluster]

    def _forget_expired(self) -> None:
        while self._deleted:
            key, at = next(iter(self._deleted.items()))
            if at > time.monotonic() - _KEPT:
                return
            self._forget(key)

    def _forget(self, key: str) -> None:
        self._deleted.pop(key, None)
        cluster, size = self._charged.pop(key, ("", 0))
        self._used[cluster] -= size
        if not self._used[cluster]:
            del self._used[cluster]


class Waiters(Mapping[ObjectRef, Waiter]):
    """All Services that wait. If they take any address of a range, they are in its queue."""

    def __init__(self) -> None:
        self._waiters: dict[ObjectRef, Waiter] = {}
        self._queues: dict[RangeKey, list[_Place]] = defaultdict(list)
        self._places: dict[ObjectRef, dict[RangeKey, _Place]] = {}
        self._wanting: Multimap[str, ObjectRef] = Multimap()
        self._sharing: Multimap[Group, ObjectRef] = Multimap()
        self._counts: Counter[str] = Counter()

    def __getitem__(self, ref: ObjectRef) -> Waiter:
        return self._waiters[ref]

    def __iter__(self) -> Iterator[ObjectRef]:
        return iter(self._waiters)

    def __len__(self) -> int:
        return len(self._waiters)

    def put(self, ref: ObjectRef, waiter: Waiter | None) -> None:
        """Set what a Service waits for; None: for nothing. It is in no queue then."""
        self.enqueue(ref, ())
        if before := self._waiters.pop(ref, None):
            self._counts[ref.cluster] -= 1
            for address in before.addresses:
                self._wanting.discard(address, ref)
            if (group := before.group(ref)) and before.families:
                self._sharing.discard(group, ref)
        if waiter:
            self._waiters[ref] = waiter
            self._counts[ref.cluster] += 1
            for address in waiter.addresses:
                self._wanting.add(address, ref)
            if (group := waiter.group(ref)) and waiter.families:
                self._sharing.add(group, ref)

    def enqueue(self, ref: ObjectRef, keys: Collection[RangeKey]) -> None:
        """Put a Service into these queues, and take it out of all others."""
        places = self._places.pop(ref, {})
        for key in places.keys() - keys:
            queue = self._queues[key]
            del queue[bisect_left(queue, places.pop(key))]
            if not queue:
                del self._queues[key]
        for key in set(keys) - places.keys():
            places[key] = (self._waiters[ref].since, ref)
            insort(self._queues[key], places[key])
        if places:
            self._places[ref] = places

    def queues(self) -> list[RangeKey]:
        """All queues that are not empty."""
        return sorted(self._queues)

    def queues_of(self, ref: ObjectRef) -> Collection[RangeKey]:
        """The queues that this Service is in."""
        return self._places.get(ref, {}).keys()

    def ahead(self, key: RangeKey, ref: ObjectRef, since: float) -> int:
        """How many others of a queue have waited longer than `ref`, which waits since `since`."""
        before = bisect_left(self._queues.get(key, []), (since, ref))
        place = self._places.get(ref, {}).get(key)
        return before - (place is not None and place < (since, ref))

    def first(self, key: RangeKey, most: int) -> list[ObjectRef]:
        """The longest waiting of a queue."""
        return [ref for _, ref in self._queues.get(key, [])[: max(0, most)]]

    def last_of_first(self, key: RangeKey, count: int, most: int, besides: ObjectRef) -> list[ObjectRef]:
        """The last `most` of the first `count` of a queue that `besides` has left, or is about to."""
        queue = self._queues.get(key, [])
        place = self._places.get(besides, {}).get(key)
        gone = len(queue) if place is None else bisect_left(queue, place)
        end = min(count, len(queue) - (place is not None))
        return [queue[at + (at >= gone)][1] for at in range(max(0, end - most), end)]

    def wanting(self, address: str) -> Set[ObjectRef]:
        """Services that wait for exactly this address."""
        return self._wanting[address]

    def sharing(self, groups: Iterable[Group]) -> set[ObjectRef]:
        """Services of these groups that take any address, and so would share that of their group."""
        return {ref for group in groups for ref in self._sharing[group]}

    def count(self, cluster: str) -> int:
        """How many Services of this cluster wait."""
        return self._counts[cluster]

    def longest(self, refs: Iterable[ObjectRef], most: int) -> list[ObjectRef]:
        """The Services of `refs` that have waited longest."""
        return heapq.nsmallest(most, refs, key=lambda ref: (self._waiters[ref].since, ref))
