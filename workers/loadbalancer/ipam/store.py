"""The address book: which Service has which address. Every change is one compare-and-set."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from bus import streams, subjects
from bus.buckets import Bucket
from bus.connection import TIMEOUT, Bus, WrongSequence
from windowbox.errors import Conflict, Unreachable
from windowbox.models.lbsettings import Range
from windowbox.models.loadbalancers import Family, family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam import adopting, entries
from workers.loadbalancer.ipam.adopting import Claim
from workers.loadbalancer.ipam.entries import Held, Holder, Marker, Waiter
from workers.loadbalancer.ipam.index import MARKER, AddressIndex, Usage
from workers.loadbalancer.ipam.results import Released

ATTEMPTS = 16
"""How often a write is tried that others came before."""


class Kept(NamedTuple):
    """An address that was kept for a Service long enough."""

    ref: ObjectRef
    uid: str
    address: str


class AddressStore:
    """Addresses belong to Services, not to what carries their traffic. `run` must be running."""

    def __init__(self, bus: Bus, ranges: Sequence[Range], quota: int | None = None) -> None:
        self.bucket = Bucket(bus, streams.ADDRESSES)
        self.index = AddressIndex(ranges, quota)
        self._listeners: list[Callable[[], None]] = []
        self._newest = 0.0
        self._doubt = 0.0
        self.bucket.on_regress(self._regressed)
        self.bucket.on_change(self._changed)
        self.bucket.on_complete(self._tell)

    @property
    def complete(self) -> asyncio.Event:
        """Set while this process knows the book."""
        return self.bucket.complete

    async def run(self) -> None:
        """Follow what others write, for ever."""
        await self.bucket.run()

    def on_change(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` after each change, and whenever all entries are known. Returns what ends that."""
        self._listeners.append(act)
        return lambda: self._listeners.remove(act)

    async def ready(self) -> None:
        """Wait until all entries are known; Unreachable if that takes too long."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await self.complete.wait()
        except TimeoutError as error:
            raise Unreachable("the address book cannot be read yet") from error

    # What Services give back.

    async def release(
        self, ref: ObjectRef, *, uid: str | None = None, keep_uid: str | None = None
    ) -> Released:
        """Take back what a Service of this name has: all, or that of `uid`, or all but that of `keep_uid`."""
        await self.ready()
        await self.bucket.catch_up()
        freed = []
        for address in sorted(self.index.addresses(ref)):
            if await self.free(address, ref, uid, keep_uid):
                freed.append(address)
        await self.hear_of_waiting(freed)
        waiter = self.index.waiters.get(ref)
        if waiter and uid in (None, waiter.uid) and keep_uid != waiter.uid:
            await self.leave_line(ref)
        return Released(tuple(freed), self.wake(freed, ref))

    async def keep(self, ref: ObjectRef, uid: str, until: float) -> Released:
        """Keep the Service's addresses for it, until this time at the latest, or until it asks again."""
        await self.ready()
        await self.bucket.catch_up()
        for address in sorted(self.index.addresses(ref)):

            def kept(holder: Holder) -> Holder | None:
                ours = holder.ref == ref and holder.uid == uid and holder.until is None
                return holder.model_copy(update={"until": until}) if ours else holder

            await self._rewrite(address, kept)
        await self.leave_line(ref)
        return Released(wake=self.wake((), ref))

    async def step_back(self, ref: ObjectRef) -> Released:
        """Let those have their turn who wait behind this Service. What it has it keeps."""
        await self.ready()
        await self.bucket.catch_up()
        if ref not in self.index.waiters:
            return Released()
        await self.leave_line(ref)
        return Released(wake=self.wake((), ref))

    async def release_expired(self, ref: ObjectRef, now: float) -> Released:
        """Take back what was kept for the Service until now."""

        def left(holder: Holder) -> Holder | None:
            over = holder.ref == ref and holder.until is not None and holder.until <= now
            return None if over else holder

        await self.ready()
        freed = [address for address, _ in self.held(ref) if await self._rewrite(address, left)]
        await self.hear_of_waiting(freed)
        return Released(tuple(freed), self.wake(freed, ref))

    async def free(
        self, address: str, ref: ObjectRef, uid: str | None = None, keep_uid: str | None = None
    ) -> bool:
        """Take one address back. Whether the Service had it."""

        def left(holder: Holder) -> Holder | None:
            theirs = holder.ref != ref or (uid is not None and holder.uid != uid) or holder.uid == keep_uid
            return holder if theirs else None

        return await self._rewrite(address, left)

    # What is known.

    def of(self, ref: ObjectRef, uid: str) -> dict[Family, str]:
        """The addresses of a Service."""
        found = sorted((h.since, a) for a, h in self.held(ref) if h.uid == uid)
        return {family(address): address for _, address in reversed(found)}

    def has_address(self, ref: ObjectRef) -> bool:
        """Whether a Service of this name has an address, or one is kept for it."""
        return bool(self.index.addresses(ref))

    def entries(self, ref: ObjectRef) -> tuple[tuple[str, Held], ...]:
        """Where the Service stands in the book. As long as nothing of that changes, the same objects."""
        return tuple((address, self.index.held(address)) for address in sorted(self.index.addresses(ref)))

    def held(self, ref: ObjectRef) -> list[tuple[str, Holder]]:
        """Addresses of whoever bears or bore this name, and how they stand in the book."""
        found = ((address, held.of(ref)) for address, held in self.entries(ref))
        return [(address, holder) for address, holder in found if holder]

    def holders(self) -> list[tuple[str, Holder]]:
        """Everybody who has an address, also those whose Service is long gone."""
        return list(self.index.holders())

    def waiting(self) -> dict[ObjectRef, Waiter]:
        """Everybody who waits for one."""
        return dict(self.index.waiters)

    def servable(self) -> list[ObjectRef]:
        """Those who wait though there is an address for them: they were not woken."""
        return self.index.servable() if self.settled() else []

    def expired(self, now: float) -> list[Kept]:
        """What was kept long enough: to be released."""
        return [
            Kept(h.ref, h.uid, a) for a, h in self.index.holders() if h.until is not None and h.until <= now
        ]

    def usage(self) -> list[Usage]:
        return self.index.usage()

    # Whether it may be relied on.

    def settled(self) -> bool:
        """Whether all addresses in use are in the book, so that the others may be given away."""
        marker = self.index.marker
        return self.complete.is_set() and marker is not None and marker.at > self._doubt

    @property
    def doubtful(self) -> bool:
        """Whether the book has forgotten what this process once read in it, and is not mended yet."""
        return self._doubt > 0 and not self.settled()

    def needs_adoption(self) -> bool:
        """Whether the holder of the lease `addresses` is to call `adopt_all`."""
        return self.complete.is_set() and not self.settled()

    async def adopt_all(self, claims: Iterable[Claim]) -> Released:
        """Write into the book what all Services have, and then that it is complete.

        Returns who is to be looked at: those whose address turned out to be another's, and those who waited.
        """
        await self.ready()
        await self.bucket.catch_up()
        readings, doubt = self.bucket.readings, self._doubt
        claims, displaced = list(claims), list[Holder]()
        for address, claimed in adopting.by_address(claims, self.index).items():
            displaced += await self._adopt(address, claimed)
        await self.bucket.catch_up()
        for claim, address in adopting.only_shown(claims, self.index):
            await self._adopt_shown(claim, address)
        marker = await self.bucket.get(MARKER)
        if (self.bucket.readings, self._doubt) != (readings, doubt):
            raise Conflict("the address book was lost while it was rebuilt")
        at = max(time.time(), self._newest + 0.001)
        await self.bucket.put(MARKER, Marker(id=uuid.uuid4().hex, at=at).encoded(), marker.sequence)
        await self.bucket.catch_up()
        wake = [*(holder.ref for holder in displaced), *self.index.waiters]
        return Released(wake=tuple(dict.fromkeys(wake)))

    async def _adopt_shown(self, claim: Claim, address: str) -> None:
        """Give a Service the address that only its own status shows, if nothing speaks against it."""
        of = family(address)
        if any(family(one) == of for one in self.index.addresses(claim.ref)):
            return
        if self.settled() and not self.index.room(claim.ref, of, time.time()):
            return  # as for any other newcomer, others may have waited longer
        if not self.index.below_quota(claim.ref.cluster, of):
            return
        for _ in range(ATTEMPTS):
            held, sequence = await self.read(address)
            holder = claim.holder(time.time())
            if entries.conflict(holder, held.holders):
                return
            with contextlib.suppress(WrongSequence):
                await self.write(address, (*held.holders, holder), sequence)
                await self.bucket.catch_up()
                return

    async def _adopt(self, address: str, claimed: Sequence[Holder]) -> tuple[Holder, ...]:
        for _ in range(ATTEMPTS):
            held, sequence = await self.read(address)
            whose = entries.settled(held.holders, claimed)
            if whose.holders == held.holders:
                return whose.displaced
            with contextlib.suppress(WrongSequence):
                await self.write(address, whose.holders, sequence)
                return whose.displaced
        raise Conflict(f"{address}: others write to it all the time")

    def _regressed(self) -> None:
        # A marker that we know may be in the older copy too, so only a newer one will do.
        self._doubt = max(self._doubt, self._newest, 0.001)

    def _changed(self, key: str, value: bytes | None) -> None:
        self.index.take(key, value)
        if self.index.marker:
            self._newest = max(self._newest, self.index.marker.at)
        self._tell()

    def _tell(self) -> None:
        for act in self._listeners:
            act()

    # One entry.

    async def read(self, address: str) -> tuple[Held, int]:
        """Whose an address is, asked of the server, and what the next to write must expect."""
        entry = await self.bucket.get(subjects.of_address(address))
        return entries.read(entry.value), entry.sequence

    async def write(self, address: str, all_of_it: Sequence[Holder], expected: int) -> None:
        key = subjects.of_address(address)
        if all_of_it:
            await self.bucket.put(key, Held(holders=tuple(all_of_it)).encoded(), expected)
        else:
            await self.bucket.delete(key, expected)

    async def _rewrite(self, address: str, change: Callable[[Holder], Holder | None]) -> bool:
        """Have each holder of an address changed, or removed. Whether that made a difference."""
        for _ in range(ATTEMPTS):
            held, sequence = await self.read(address)
            after = tuple(h for holder in held.holders if (h := change(holder)))
            if after == held.holders:
                return False
            with contextlib.suppress(WrongSequence):
                await self.write(address, after, sequence)
                return True
        raise Conflict(f"{address}: others write to it all the time")

    # The line.

    async def join_line(self, ref: ObjectRef, waiter: Waiter) -> float:
        """Wait with the others. Returns since when."""
        before = self.index.waiters.get(ref)
        if before and before.uid == waiter.uid:
            waiter = waiter.model_copy(update={"since": before.since})
        if waiter != before:
            await self.bucket.put(subjects.of_waiting(ref), waiter.encoded(), None)
        return waiter.since

    async def leave_line(self, ref: ObjectRef) -> None:
        if ref in self.index.waiters:
            await self.bucket.delete(subjects.of_waiting(ref), None)

    def wake(self, freed: Sequence[str], besides: ObjectRef) -> tuple[ObjectRef, ...]:
        """Who is to be looked at now that `freed` were given back by `besides`."""
        return tuple(self.index.servable(freed, besides))

    async def hear_of_waiting(self, freed: Collection[str]) -> None:
        """Know of all who began to wait before this was freed: those who come later see it for themselves."""
        if freed:
            await self.bucket.catch_up()

    async def report_loss(self) -> None:
        """The marker is gone, and those who knew it were not told: tell them."""
        if (await self.bucket.get(MARKER)).sequence == 0:
            with contextlib.suppress(WrongSequence):
                await self.bucket.delete(MARKER, 0)
