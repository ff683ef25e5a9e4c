"""Allocation of addresses to one Service: what it holds, what its status shows, what is free."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace

from bus.transport.connection import WrongSequence
from windowbox.errors import Conflict
from windowbox.models.loadbalancers import Family, family
from workers.loadbalancer.ipam import ranges, results
from workers.loadbalancer.ipam.entries import Held, Waiter, conflict, port_conflicts
from workers.loadbalancer.ipam.holdings import MOST_SHARING
from workers.loadbalancer.ipam.index import MOST_BYTES, MOST_WAITING
from workers.loadbalancer.ipam.results import AddressRequest, Allocated, Answer, Queued, Rejected
from workers.loadbalancer.ipam.store import ATTEMPTS, AddressStore

_BEARABLE = {results.USED_UP, *results.REFUSED}
"""Reasons for which a Service with PreferDualStack makes do with one family."""


class StaleRead(Exception):
    """The store has changed since the attempt began."""


async def allocate(store: AddressStore, request: AddressRequest) -> Answer:
    """Allocate the addresses for a Service. It keeps those that still fit the request."""
    for _ in range(ATTEMPTS):
        await store.ready()
        with contextlib.suppress(WrongSequence, StaleRead):
            return await Allocation(store, request).attempt()
    raise Conflict(f"{request.ref}: others write to the same addresses all the time")


class Allocation:
    """One attempt for one Service. WrongSequence or StaleRead if others wrote meanwhile."""

    def __init__(self, store: AddressStore, request: AddressRequest) -> None:
        self._store = store
        self._request = request
        self._index = store.index
        self._readings = store.bucket.readings
        self._holdings = store.index.holdings
        self._known = set(self._holdings.of(request.ref))
        self._found: dict[str, tuple[Held, int]] = {}
        self._chosen: dict[Family, str] = {}
        self._obstacles: list[Queued | Rejected] = []
        self._waiter = Waiter(
            uid=request.uid,
            since=time.time(),
            share=request.share,
            ports=request.shared_ports,
            range=request.range,
        )
        self._awaits_completion = False

    async def attempt(self) -> Answer:
        request, ref = self._request, self._request.ref
        for of, address in request.fixed.items():
            if of not in request.families:
                return results.wrong_family(of, address)
        if not self._known and ref not in self._index.waiters and self._index.full(ref.cluster):
            return results.store_full(MOST_BYTES)
        for address in sorted(self._known):
            await self._read(address)  # from the server: the next write must expect the entry's sequence
        for wanted in sorted(request.families):
            await self._allocate(wanted)
        waited = ref in self._index.waiters
        waits = bool(self._waiter.families or self._waiter.addresses)
        if waits:
            await self._store.join_queue(ref, self._waiter)
            await self._store.bucket.catch_up()
            if self._store.is_complete() and (self._awaits_completion or self._index.is_servable(ref)):
                # An address was released just before the Service joined: no event would requeue it.
                raise StaleRead
        freed = []
        for address, (held, _) in self._found.items():
            # A family without a new address keeps its old one.
            of = family(address)
            unwanted = of not in request.families or self._chosen.get(of, address) != address
            if held.of(ref) and unwanted and await self._store.free(address, ref):
                freed.append(address)
        await self._store.catch_up_waiters(freed)
        if not waits:
            await self._store.leave_queue(ref)
        wake = self._store.wake(freed, ref) if freed or waited else ()
        bearable = request.content and self._chosen and {one.reason for one in self._obstacles} <= _BEARABLE
        if self._obstacles and not bearable:
            # A rejection needs a person, and so comes before a wait.
            return replace(min(self._obstacles, key=lambda one: isinstance(one, Queued)), wake=wake)
        return Allocated(dict(self._chosen), self._not_shared(), wake)

    def _not_shared(self) -> str:
        """Why it has an address of its own though it would share one; empty if it shares one."""
        holder, ref = self._request.holder(0.0), self._request.ref
        if any(self._holdings.held(address).others(ref) for address in self._chosen.values()):
            return ""
        for address in sorted(self._holdings.shared(holder.group)):
            for other in sorted(self._holdings.held(address).others(ref), key=lambda other: other.ref):
                if port_conflicts(holder, other):
                    return results.not_shared(self._request, address, other)
        return ""

    async def _allocate(self, wanted: Family) -> None:
        """Choose an address of this family: the requested, the held, one in its status, or a free one."""
        request = self._request
        requested = request.fixed.get(wanted)
        own = ((a, held.of(request.ref)) for a, (held, _) in self._found.items() if family(a) == wanted)
        mine = {a: holder for a, holder in own if holder and (requested == a or not self._is_elsewhere(a))}
        preferred = requested
        if requested is None and mine:
            # A crash may leave several of one family: the one in its status is preferred, then the oldest.
            shown, avoid = {*request.adopt, *request.shown}, request.avoid
            preferred = min(mine, key=lambda a: (a in avoid, a not in shown, mine[a].since, a))
            if preferred in avoid and await self._move(wanted):
                return
        if preferred in mine and await self._retain(wanted, preferred):
            return
        if requested is not None:
            await self._allocate_requested(wanted, requested)
        elif not await self._adopt(wanted):
            await self._allocate_any(wanted)

    def _is_elsewhere(self, address: str) -> bool:
        """Whether another range of its cluster has the address than the one that it asks for."""
        gives, cluster = self._index.gives, self._request.ref.cluster
        return not gives(cluster, address, self._request.range) and gives(cluster, address)

    async def _move(self, wanted: Family) -> bool:
        """Allocate another address than the one it cannot use. False if it has to stay."""
        await self._store.bucket.catch_up()
        if not self._store.is_complete():
            return False
        self._check_fresh()
        for address in self._shareable(wanted):
            await self._read(address)
        others = self._free(wanted) if self._room(wanted) else ()
        for address in itertools.chain(self._shareable(wanted), others):
            if address not in self._request.avoid and await self._join(wanted, address):
                return True
        return False

    async def _retain(self, wanted: Family, address: str) -> bool:
        """Keep an address. False if it cannot be kept and another will do."""
        held, sequence = self._found[address]
        if self._store.doubtful and address not in self._request.adopt:
            await self._queue_until_complete(wanted)
            return True
        before, others = held.of(self._request.ref), held.others(self._request.ref)
        holder = self._request.holder(time.time(), before)
        if other := conflict(holder, others):
            if not port_conflicts(holder, other):
                return False  # the share annotation of one has changed
            self._chosen[wanted] = address
            self._obstacles.append(results.port_conflict(address, self._request, holder, other))
            self._queue_for(address)
            return True
        self._chosen[wanted] = address
        if before and len(holder.ports) > len(before.ports) and self._index.full(holder.cluster):
            self._obstacles.append(results.store_full(MOST_BYTES))
        elif holder != before:
            await self._store.write(address, (*others, holder), sequence)
        return True

    async def _adopt(self, wanted: Family) -> bool:
        """Allocate the address that was reported for it, should the bus have lost the allocation."""
        for address in self._request.adopt:
            fits = family(address) == wanted and self._gives(address)
            requested = self._request.fixed.get(wanted, address)
            if fits and requested == address and await self._join(wanted, address):
                return True
        return False

    async def _allocate_requested(self, wanted: Family, address: str) -> None:
        """Allocate the requested address, or report why not."""
        if not self._gives(address):
            self._obstacles.append(self._no_range(wanted, address))
            return
        if address in self._request.adopt and await self._adopt(wanted):
            return
        if not await self._may_allocate(wanted):
            return
        held, _ = await self._read(address)
        holder, others = self._request.holder(time.time()), held.others(self._request.ref)
        if holder.cluster not in held.clusters and self._exceeds_quota(wanted):
            return  # it could not have the address even if it were free
        if other := conflict(holder, others):
            self._obstacles.append(results.address_conflict(address, self._request, holder, other))
            self._queue_for(address)
        elif len(others) >= MOST_SHARING:
            self._obstacles.append(results.crowded(address, MOST_SHARING))
            self._queue_for(address)
        elif not held.holders and not self._room(wanted):
            self._queue_for_any(wanted)
        elif not await self._join(wanted, address):
            raise StaleRead

    async def _allocate_any(self, wanted: Family) -> None:
        """Allocate any address of the family, or queue for one."""
        cluster = self._request.ref.cluster
        if self._index.total(cluster, wanted, self._request.range) == 0:
            self._obstacles.append(self._no_range(wanted))
            return
        if not await self._may_allocate(wanted):
            return
        for address in self._shareable(wanted):
            await self._read(address)
            if await self._join(wanted, address):
                return
        if self._exceeds_quota(wanted):
            return
        if self._room(wanted):
            # An address that only its status shows is no proof, but clients may use it: try it first.
            shown = [
                address
                for address in self._request.shown
                if family(address) == wanted
                and self._gives(address)
                and not self._holdings.held(address).holders
            ]
            for address in itertools.chain(shown, self._free(wanted)):
                if await self._join(wanted, address):
                    return
        self._queue_for_any(wanted)

    def _shareable(self, wanted: Family) -> list[str]:
        """Addresses that all holders would share with it, sorted."""
        holder = self._request.holder(0.0)
        found = self._index.joinable(holder.group, holder.ports)
        return [address for address in found if family(address) == wanted and address not in self._known]

    def _free(self, wanted: Family) -> Iterator[str]:
        """Free addresses, those to avoid last."""
        ref, avoided = self._request.ref, []
        range_ = self._index.range_of(ref.cluster, self._request.range)
        assert range_ is not None  # or there would have been no room
        for address in ranges.candidates(range_, wanted, f"{ref.cluster}/{ref.namespace}/{ref.name}"):
            if not self._holdings.held(address).holders:
                if address in self._request.avoid:
                    avoided.append(address)
                else:
                    yield address
        yield from avoided

    def _exceeds_quota(self, wanted: Family) -> bool:
        """Whether its cluster is at its quota. Such a Service joins no queue, and so delays no other."""
        asked = self._request.ref.cluster, wanted, self._request.range
        quota = self._index.quota(*asked)
        if quota is None or self._index.below_quota(*asked):
            return False
        self._obstacles.append(results.quota_exceeded(wanted, quota))
        return True

    def _room(self, wanted: Family) -> bool:
        """Whether more addresses are free than Services have waited longer."""
        return self._index.room(self._request.ref, wanted, self._since(), self._request.range)

    def _gives(self, address: str) -> bool:
        """Whether the range that it asks for has the address."""
        return self._index.gives(self._request.ref.cluster, address, self._request.range)

    def _since(self) -> float:
        before = self._index.waiters.get(self._request.ref)
        return before.since if before and before.uid == self._request.uid else self._waiter.since

    def _no_range(self, wanted: Family, address: str | None = None) -> Rejected:
        range_ = self._index.range_of(self._request.ref.cluster, self._request.range)
        if range_ is None:
            return results.no_range(self._request.ref.cluster)
        if address is None:
            return results.no_family(wanted)
        return results.outside(address, ", ".join(map(str, range_.prefixes)))

    # The queue.

    async def _may_allocate(self, wanted: Family) -> bool:
        """Read all changes. False, and queued, while addresses in use may be missing from the store."""
        await self._store.bucket.catch_up()
        if not self._store.is_complete():
            await self._queue_until_complete(wanted)
            return False
        self._check_fresh()
        return True

    async def _queue_until_complete(self, wanted: Family) -> None:
        if self._index.marker is None:
            await self._store.report_loss()
        self._awaits_completion = True
        self._obstacles.append(results.rebuilding())
        if self._may_queue():
            self._waiter = self._waiter.model_copy(update={"families": (*self._waiter.families, wanted)})

    def _queue_for_any(self, wanted: Family) -> None:
        ref = self._request.ref
        total = self._index.total(ref.cluster, wanted, self._request.range)
        if self._may_queue():
            ahead = self._index.ahead(ref, wanted, self._since(), self._request.range)
            self._obstacles.append(results.used_up(wanted, total, ahead))
            self._waiter = self._waiter.model_copy(update={"families": (*self._waiter.families, wanted)})
        else:
            self._obstacles.append(results.queue_full(wanted, total, MOST_WAITING))

    def _queue_for(self, address: str) -> None:
        if self._may_queue():
            self._waiter = self._waiter.model_copy(update={"addresses": (*self._waiter.addresses, address)})

    def _may_queue(self) -> bool:
        """Whether it waits already, or its cluster is below the limit of waiting Services."""
        ref = self._request.ref
        return ref in self._index.waiters or (ref.cluster, None) not in self._index.reached

    # Single entries.

    async def _read(self, address: str) -> tuple[Held, int]:
        self._found[address] = found = await self._store.read(address)
        return found

    async def _join(self, wanted: Family, address: str) -> bool:
        """Become a holder of an address; False if it conflicts with a holder."""
        held, sequence = self._found.get(address, (Held(holders=()), 0))
        for _ in range(3):
            ref = self._request.ref
            holder, others = self._request.holder(time.time(), held.of(ref)), held.others(ref)
            if conflict(holder, others) or len(others) >= MOST_SHARING:
                return False
            if self._reconnected():
                raise StaleRead
            with contextlib.suppress(WrongSequence):
                await self._store.write(address, (*others, holder), sequence)
                self._chosen[wanted] = address
                return True
            held, sequence = await self._read(address)
        return False

    def _check_fresh(self) -> None:
        if self._holdings.of(self._request.ref) - self._found.keys() or self._reconnected():
            raise StaleRead

    def _reconnected(self) -> bool:
        """Whether the connection was lost since the attempt began: the server may have lost entries."""
        bucket = self._store.bucket
        return bucket.readings != self._readings or not bucket.complete.is_set()
