"""Addresses in use: who holds each, who may join its holders, and how many each cluster has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Set

from windowbox.models.loadbalancers import Family, family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam.entries import FREE, Group, Held, Holder
from workers.loadbalancer.ipam.multimap import Multimap


class Holdings:
    """All addresses in use, indexed change by change: nothing but an iteration goes through all of them."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._of: Multimap[ObjectRef, str] = Multimap()
        self._shared: Multimap[Group, str] = Multimap()
        self._crowds: dict[str, _Crowd] = {}
        self._counts: Counter[tuple[str, Family]] = Counter()
        self._kept: set[str] = set()

    def put(self, address: str, held: Held) -> None:
        """Note who holds the address from now on."""
        before, of = self.held(address), family(address)
        self._held.pop(address, None)
        self._crowds.pop(address, None)
        self._kept.discard(address)
        for holder in before.holders:
            self._of.discard(holder.ref, address)
        for group in before.groups:
            self._shared.discard(group, address)
        for cluster in before.clusters:
            self._counts[cluster, of] -= 1
        for holder in held.holders:
            self._of.add(holder.ref, address)
        for group in held.groups:
            self._shared.add(group, address)
        for cluster in held.clusters:
            self._counts[cluster, of] += 1
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

    def count(self, cluster: str, of: Family) -> int:
        """How many addresses Services of this cluster hold."""
        return self._counts[cluster, of]

    def clusters(self) -> set[str]:
        """The clusters whose Services hold addresses."""
        return {cluster for (cluster, _), count in self._counts.items() if count}

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
    """The holders of a shared address. There may be thousands: questions do not go through them."""

    def __init__(self, held: Held) -> None:
        self._holders = {holder.ref: holder for holder in held.holders}
        self._groups = Counter(holder.group for holder in held.holders)
        self._ports = Counter(port for holder in held.holders for port in set(holder.ports))

    def admits(self, group: Group | None, ports: Collection[str], but: Collection[ObjectRef]) -> bool:
        absent = [self._holders[ref] for ref in {*but} if ref in self._holders]
        others = len(self._holders) - len(absent)
        if not others:
            return True
        if not group or self._groups[group] - sum(one.group == group for one in absent) < others:
            return False
        theirs = [{*one.ports} for one in absent]
        return all(self._ports[port] == sum(port in some for some in theirs) for port in ports)
