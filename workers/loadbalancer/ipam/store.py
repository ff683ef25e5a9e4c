"""The address store: which Service has which address. Every change is one compare-and-set."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Sequence

from bus import streams, subjects
from bus.transport.buckets import Bucket
from bus.transport.connection import TIMEOUT, Bus, WrongSequence
from windowbox.errors import Conflict, Unreachable
from windowbox.models.loadbalancers import Family, family
from windowbox.models.refs import ObjectRef
from windowbox.settings.lbsettings import Range
from workers.loadbalancer.ipam import entries
from workers.loadbalancer.ipam.entries import Held, Holder, Marker, Waiter
from workers.loadbalancer.ipam.index import MARKER, AddressIndex, Usage
from workers.loadbalancer.ipam.results import Released

ATTEMPTS = 16
"""Attempts of a write that loses to other writers."""


class AddressStore:
    """Addresses are allocated to Services, not to the Envoy that has them. `run` must be running."""

    def __init__(self, bus: Bus, ranges: Sequence[Range], quota: int | None = None) -> None:
        self.bucket = Bucket(bus, streams.ADDRESSES)
        self.index = AddressIndex(ranges, quota)
        self.synced = self.bucket.complete
        """Set while this process knows all entries."""
        self.run = self.bucket.run
        """Follows the changes of all processes; never returns."""
        self.doubt = 0.0
        """The bus has lost entries that this process once read: only a later marker proves adoption."""
        self._newest = 0.0
        self._on_change: list[Callable[[], None]] = []
        self._on_holder: list[Callable[[ObjectRef], None]] = []
        self.bucket.on_regress(self._regressed)
        self.bucket.on_change(self._changed)
        self.bucket.on_complete(self._notify)

    def on_change(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` after each change, and whenever all entries are known. Returns what ends that."""
        self._on_change.append(act)
        return lambda: self._on_change.remove(act)

    def on_holder(self, act: Callable[[ObjectRef], None]) -> Callable[[], None]:
        """Call `act` with each present or former holder of a changed entry, before `on_change` is called.

        Returns what ends that.
        """
        self._on_holder.append(act)
        return lambda: self._on_holder.remove(act)

    async def ready(self) -> None:
        """Wait until all entries are known; Unreachable if that takes too long."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await self.synced.wait()
        except TimeoutError as error:
            raise Unreachable("the address store cannot be read yet") from error

    # Release.

    async def release(self, ref: ObjectRef, *, keep_uid: str | None = None) -> Released:
        """Release the addresses of all Services that have or had this name, but not of `keep_uid`."""
        await self.ready()
        await self.bucket.catch_up()
        freed = []
        for address in sorted(self.index.holdings.of(ref)):
            if await self.free(address, ref, keep_uid):
                freed.append(address)
        await self.catch_up_waiters(freed)
        waiter = self.index.waiters.get(ref)
        if waiter and keep_uid != waiter.uid:
            await self.leave_queue(ref)
        return Released(tuple(freed), self.wake(freed, ref))

    async def keep(self, ref: ObjectRef, uid: str, until: float) -> Released:
        """Keep the Service's addresses for it until this time, or until it asks again."""

        def kept(holder: Holder) -> Holder | None:
            ours = holder.ref == ref and holder.uid == uid and holder.until is None
            return holder.model_copy(update={"until": until}) if ours else holder

        await self.ready()
        await self.bucket.catch_up()
        for address in sorted(self.index.holdings.of(ref)):
            await self._rewrite(address, kept)
        await self.leave_queue(ref)
        return Released(wake=self.wake((), ref))

    async def step_back(self, ref: ObjectRef) -> Released:
        """Leave the queue, so that the next Services get their turn. The Service keeps its addresses."""
        await self.ready()
        await self.bucket.catch_up()
        if ref not in self.index.waiters:
            return Released()
        await self.leave_queue(ref)
        return Released(wake=self.wake((), ref))

    async def release_expired(self, ref: ObjectRef, now: float) -> Released:
        """Release the addresses of the Service whose grace period is over."""

        def left(holder: Holder) -> Holder | None:
            over = holder.ref == ref and holder.until is not None and holder.until <= now
            return None if over else holder

        await self.ready()
        freed = [address for address, _ in self.held(ref) if await self._rewrite(address, left)]
        await self.catch_up_waiters(freed)
        return Released(tuple(freed), self.wake(freed, ref))

    async def free(self, address: str, ref: ObjectRef, keep_uid: str | None = None) -> bool:
        """Release one address. Whether the Service held it."""
        return await self._rewrite(
            address, lambda one: one if one.ref != ref or one.uid == keep_uid else None
        )

    # Queries.

    def of(self, ref: ObjectRef, uid: str) -> dict[Family, str]:
        """The addresses of a Service."""
        found = sorted((h.since, a) for a, h in self.held(ref) if h.uid == uid)
        return {family(address): address for _, address in reversed(found)}

    def has_address(self, ref: ObjectRef) -> bool:
        """Whether a Service of this name has an address, or one is kept for it."""
        return bool(self.index.holdings.of(ref))

    def entries(self, ref: ObjectRef) -> tuple[tuple[str, Held], ...]:
        """The entries of all addresses that the Service holds. Unchanged entries stay the same objects."""
        holdings = self.index.holdings
        return tuple((address, holdings.held(address)) for address in sorted(holdings.of(ref)))

    def held(self, ref: ObjectRef) -> list[tuple[str, Holder]]:
        """Addresses held by present and former Services of this name, and their entries."""
        found = ((address, held.of(ref)) for address, held in self.entries(ref))
        return [(address, holder) for address, holder in found if holder]

    def holders(self) -> list[tuple[str, Holder]]:
        """All holders, including Services that are long gone."""
        return list(self.index.holdings)

    def clusters(self) -> set[str]:
        """The clusters whose Services hold addresses."""
        return self.index.holdings.clusters()

    def users(self) -> list[ObjectRef]:
        """All Services that hold an address or wait for one, including those that are long gone."""
        return list(dict.fromkeys([*self.index.holdings.services(), *self.index.waiters]))

    def is_kept(self, ref: ObjectRef) -> bool:
        """Whether a Service has only addresses that are kept for it until some time."""
        return ref not in self.index.waiters and all(holder.until for _, holder in self.held(ref))

    def waiter(self, ref: ObjectRef) -> Waiter | None:
        """The reason why a Service waits."""
        return self.index.waiters.get(ref)

    def servable(self) -> list[ObjectRef]:
        """Services that wait although there is an address for them: they were not requeued."""
        return self.index.servable() if self.is_complete() else []

    def expired(self, now: float) -> list[ObjectRef]:
        """Services with an address whose grace period is over."""
        holders = (holder for _, held in self.index.holdings.kept() for holder in held.holders)
        return [one.ref for one in holders if one.until is not None and one.until <= now]

    def usage(self) -> list[Usage]:
        return self.index.usage()

    # Completeness: whether all addresses in use are known.

    def is_complete(self) -> bool:
        """Whether the store holds all addresses in use, so that the others may be allocated."""
        marker = self.index.marker
        return self.synced.is_set() and marker is not None and marker.at > self.doubt

    @property
    def doubtful(self) -> bool:
        """Whether the bus has lost entries that this process once read, and adoption is not done yet."""
        return self.doubt > 0 and not self.is_complete()

    def needs_adoption(self) -> bool:
        """Whether the holder of the lease `addresses` has to call `addressclaims.adopt_all`."""
        return self.synced.is_set() and not self.is_complete()

    async def mark_complete(self, expected: int) -> None:
        """Declare that all addresses in use are in the store."""
        # Clocks of processes differ, and only a marker newer than any before ends the doubt.
        at = max(time.time(), self._newest + 0.001)
        await self.bucket.put(MARKER, Marker(id=uuid.uuid4().hex, at=at).encoded(), expected)
        await self.bucket.catch_up()

    async def report_loss(self) -> None:
        """Announce to all processes that the marker is gone: no event did."""
        if (await self.bucket.get(MARKER)).sequence == 0:
            with contextlib.suppress(WrongSequence):
                await self.bucket.delete(MARKER, 0)

    def _regressed(self) -> None:
        # The older copy may hold the marker that we know, too: only a newer one proves adoption.
        self.doubt = max(self.doubt, self._newest, 0.001)

    def _changed(self, key: str, value: bytes | None) -> None:
        for ref in self.index.apply(key, value):
            for act in self._on_holder:
                act(ref)
        if self.index.marker:
            self._newest = max(self._newest, self.index.marker.at)
        self._notify()

    def _notify(self) -> None:
        for act in self._on_change:
            act()

    # One entry.

    async def read(self, address: str) -> tuple[Held, int]:
        """The entry of an address, read from the server, and the sequence that the next write must expect."""
        entry = await self.bucket.get(subjects.of_address(address))
        return entries.read(entry.value), entry.sequence

    async def write(self, address: str, holders: Sequence[Holder], expected: int) -> None:
        """Replace the entry of an address; WrongSequence if another process wrote it meanwhile."""
        key = subjects.of_address(address)
        if holders:
            await self.bucket.put(key, Held(holders=tuple(holders)).encoded(), expected)
        else:
            await self.bucket.delete(key, expected)

    async def _rewrite(self, address: str, change: Callable[[Holder], Holder | None]) -> bool:
        """Change or remove each holder of an address. Whether that made a difference."""
        for _ in range(ATTEMPTS):
            held, sequence = await self.read(address)
            after = tuple(h for holder in held.holders if (h := change(holder)))
            if after == held.holders:
                return False
            with contextlib.suppress(WrongSequence):
                await self.write(address, after, sequence)
                return True
        raise Conflict(f"{address}: others write to it all the time")

    # The queue for addresses.

    async def join_queue(self, ref: ObjectRef, waiter: Waiter) -> None:
        """Join the queue. A Service that waits already keeps its place."""
        before = self.index.waiters.get(ref)
        if before and before.uid == waiter.uid:
            waiter = waiter.model_copy(update={"since": before.since})
        if waiter != before:
            await self.bucket.put(subjects.of_waiting(ref), waiter.encoded(), None)

    async def leave_queue(self, ref: ObjectRef) -> None:
        if ref in self.index.waiters:
            await self.bucket.delete(subjects.of_waiting(ref), None)

    def wake(self, freed: Sequence[str], besides: ObjectRef) -> tuple[ObjectRef, ...]:
        """Services to requeue now that `besides` has released `freed`."""
        return tuple(self.index.wake(freed, besides))

    async def catch_up_waiters(self, freed: Collection[str]) -> None:
        """Read which Services joined the queue before the release: later ones see the release themselves."""
        if freed:
            await self.bucket.catch_up()
