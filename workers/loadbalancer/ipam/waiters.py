"""Services that wait for an address, in order of waiting, and by what they wait for."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from windowbox.models.loadbalancers import Family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam.entries import Group, Waiter
from workers.loadbalancer.ipam.multimap import Multimap

RangeKey = tuple[int, Family]
"""The addresses of one range and family: the place of the range among all, and the family."""

_Place = tuple[float, ObjectRef]


class Waiters(Mapping[ObjectRef, Waiter]):
    """All Services that wait. Those that take any address of a range stand in its queue."""

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
        """Note what a Service waits for; None: for nothing. It stands in no queue then."""
        self.line_up(ref, ())
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

    def line_up(self, ref: ObjectRef, keys: Collection[RangeKey]) -> None:
        """Have a Service stand in these queues, and in no other."""
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
        """All queues in which a Service stands."""
        return sorted(self._queues)

    def queues_of(self, ref: ObjectRef) -> Collection[RangeKey]:
        """The queues in which this Service stands."""
        return self._places.get(ref, {}).keys()

    def ahead(self, key: RangeKey, ref: ObjectRef, since: float) -> int:
        """How many others of a queue have waited longer than `ref`, if that has since `since`."""
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
        """Services that wait for this very address."""
        return self._wanting[address]

    def sharing(self, groups: Iterable[Group]) -> set[ObjectRef]:
        """Services of these groups that take any address, and so would join others of their group."""
        return {ref for group in groups for ref in self._sharing[group]}

    def count(self, cluster: str) -> int:
        """How many Services of this cluster wait."""
        return self._counts[cluster]

    def longest(self, refs: Iterable[ObjectRef], most: int) -> list[ObjectRef]:
        """Those of `refs` that have waited longest."""
        return heapq.nsmallest(most, refs, key=lambda ref: (self._waiters[ref].since, ref))
