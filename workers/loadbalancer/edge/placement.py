"""Placement: which host of several serves a load balancer, and when it may.

Each host computes alone where each load balancer is placed. The state of one, in the bucket `edges`, names
the host that serves it, its holder, which changes by compare-and-set. A host takes what is placed on it once
the holder has handed it over, or is dead.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
from collections.abc import Callable, Collection, Iterator, Mapping

from bus.leases.members import Members
from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.edgestate import States, holder_in
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.tracked import Changes, LoadBalancers, Tracked


def placed(unit: str, hosts: Collection[str]) -> str:
    """The host of an address: rendezvous hashing, so that a host that comes or goes moves only its own."""

    def weight(host: str) -> tuple[bytes, str]:
        return hashlib.blake2b(f"{host} {unit}".encode(), digest_size=8).digest(), host

    return max(hosts, key=weight)


def unit(ref: ObjectRef, store: AddressStore) -> tuple[str, set[ObjectRef]]:
    """The first of the addresses that have to be on one host, and the Services that hold them.

    A Service has one state, so all its addresses are on one host, and so are the Services that share them.
    """
    addresses, services, new = set[str](), set[ObjectRef](), {ref}
    while new:
        services |= new
        found = {address for one in new for address, _ in store.entries(one)} - addresses
        addresses |= found
        holdings = store.index.holdings
        new = {holder.ref for address in found for holder in holdings.held(address).holders} - services
    return min(addresses, key=_order, default=""), services


def _order(address: str) -> tuple[int, int]:
    found = ipaddress.ip_address(address)
    return found.version, int(found)


class Placement:
    """What this host serves, for one term of its lease. Without members, it is the only host."""

    def __init__(
        self,
        host: str,
        members: Members | None,
        states: States,
        store: AddressStore,
        changed: Callable[[], None],
    ) -> None:
        self.host = host
        self._members = members
        self._states = states
        self._store = store
        self._changed = changed
        self._hosts = frozenset({host})
        self._holders: dict[ObjectRef, str] = {}
        """By load balancer, the host that serves it, or served it last: by its state."""
        self._units: dict[ObjectRef, tuple[str, set[ObjectRef]]] = {}
        self._of: LoadBalancers = Tracked()
        """All load balancers, as of the last judgement."""
        self._wanted: Changes[ObjectRef] = Changes()
        self._outdated: Changes[ObjectRef] = Changes()
        """Load balancers whose holder, place or hosts have changed since they were judged."""
        self._ours: LoadBalancers = Tracked()
        self._untaken: dict[ObjectRef, LoadBalancer] = {}
        self._moving: dict[ObjectRef, str] = {}
        self._unwanted: set[ObjectRef] = set()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Follow hosts, addresses and states within the block."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._store.on_holder(self._holder_changed))
            stack.callback(self._states.on_state(self._state_changed))
            if self._members:
                stack.callback(self._members.on_change(self._members_changed))
                self._members.doubt()
                self._members_changed()
            self._holders = dict(self._states.holders())
            self._outdated.add(self._holders)
            yield

    async def complete(self) -> None:
        """Wait until the other hosts are known."""
        if self._members:
            await self._members.complete.wait()

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that live."""
        return self._hosts

    def ours(self, load_balancers: LoadBalancers) -> LoadBalancers:
        """Those of these that this host serves: always the same mapping."""
        self._judge(load_balancers)
        return self._ours

    def untaken(self, load_balancers: LoadBalancers) -> Mapping[ObjectRef, LoadBalancer]:
        """Those of these that this host shall serve, and which no host holds yet."""
        self._judge(load_balancers)
        return dict(self._untaken)

    def moving(self, load_balancers: LoadBalancers) -> dict[ObjectRef, str]:
        """Those of these that this host holds and has to hand over, and to which host."""
        self._judge(load_balancers)
        return dict(self._moving)

    def unwanted(self, load_balancers: LoadBalancers) -> set[ObjectRef]:
        """Those that this host holds, or no living one, and which are not among these."""
        self._judge(load_balancers)
        return set(self._unwanted)

    def is_elsewhere(self, address: str) -> bool:
        """Whether the address belongs to a Service that this host does not serve."""
        services = (one.ref for one in self._store.index.holdings.held(address).holders)
        ours = (None, self.host)
        return not self._alone and any(
            self.placed(ref) != self.host or self.holder(ref) not in ours for ref in services
        )

    def holder(self, ref: ObjectRef) -> str | None:
        """The living host that serves it, if one does."""
        holder = self._holders.get(ref)
        return holder if holder in self._hosts else None

    def placed(self, ref: ObjectRef) -> str:
        """The host that shall serve it."""
        if ref not in self._units:
            name, services = unit(ref, self._store)
            self._units |= dict.fromkeys(services, (name, services))
        return placed(self._units[ref][0], self._hosts)

    def taken(self, ref: ObjectRef) -> None:
        """The state names this host now."""
        self._holders[ref] = self.host
        self._outdated.add((ref,))

    def withdrawn(self, ref: ObjectRef) -> None:
        """No host serves it any longer."""
        self._holders.pop(ref, None)
        self._outdated.add((ref,))

    @property
    def _alone(self) -> bool:
        return len(self._hosts) == 1

    def _judge(self, load_balancers: LoadBalancers) -> None:
        """Judge the load balancers that have changed since the last call, or whose holder has."""
        self._of = load_balancers
        self._wanted.follow(load_balancers)
        with self._wanted.taken() as changed, self._outdated.taken() as outdated:
            for ref in changed | outdated:
                self._judge_one(ref, load_balancers.get(ref))

    def _judge_one(self, ref: ObjectRef, one: LoadBalancer | None) -> None:
        held, alone = self._holders.get(ref) == self.host, self._alone
        placed = self.host if alone or one is None else self.placed(ref)
        here = one is not None and placed == self.host
        self._ours.put(ref, one if here and (alone or held) else None)
        for those in (self._untaken, self._moving):
            those.pop(ref, None)
        self._unwanted.discard(ref)
        if one is None:
            if ref in self._holders and self.holder(ref) in (None, self.host):
                self._unwanted.add(ref)
        elif held and not here:
            self._moving[ref] = placed
        elif here and not alone and self.holder(ref) is None:
            self._untaken[ref] = one

    def _members_changed(self) -> None:
        self._hosts = (self._members.alive if self._members else frozenset()) | {self.host}
        self._outdated.add([*self._of, *self._holders])
        self._changed()

    def _holder_changed(self, ref: ObjectRef) -> None:
        """A Service holds other addresses: it may be in another unit."""
        for one in {ref, *self._units.get(ref, ("", ()))[1]}:
            self._units.pop(one, None)
            self._outdated.add((one,))

    def _state_changed(self, ref: ObjectRef, value: bytes | None) -> None:
        before = self._holders.get(ref)
        if value:
            self._holders[ref] = holder_in(value)
        elif before != self.host:  # what this host serves stays with it if the bus has lost the state
            self._holders.pop(ref, None)
        if self._holders.get(ref) != before:
            self._outdated.add((ref,))
            self._changed()
