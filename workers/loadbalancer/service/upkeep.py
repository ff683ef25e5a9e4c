"""Upkeep of allocations: adoption of addresses in use, garbage collection, and requeues after releases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from bus import subjects
from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.leases import guard
from bus.messages import Reason, Wish
from bus.outcomes import backoff
from bus.transport.connection import Bus
from bus.views import View
from bus.workqueue.queue import Queue
from windowbox.errors import WindowboxError
from windowbox.models.loadbalancers import Family, family
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef, is_provider_cluster
from windowbox.settings.lbsettings import LoadBalancerSettings, families_for, matches
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam.index import Limit
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.adoption import Adoption
from workers.loadbalancer.spec import cloudterms, demands, selection

logger = logging.getLogger(__name__)

_SWEEP_INTERVAL = 60.0
_AT_ONCE = 500
"""Services between two pauses of a loop over tens of thousands: other tasks run then."""
_RETRY = 1.0
_RETRY_LATER = 5.0
"""Seconds until adoption is retried while new addresses can be allocated all the same."""

_PAUSE = 0.1
"""Seconds for which changes are batched: workers have mostly requeued the right Services themselves."""
_MORE = 8
"""Services that are requeued beyond the free places: some may ask for none, because they cannot be served."""


class Asking(NamedTuple):
    """A Service that asks for a load balancer."""

    cluster: str
    families: tuple[Family, ...]
    range: str = ""


@dataclass(eq=False, repr=False)
class AddressUpkeep:
    """Keeps the address store in line with the Services. For the holder of the lease `addresses`."""

    _bus: Bus
    _clusters: Clusters
    _registry: Registry
    _store: AddressStore
    _states: States
    _settings: LoadBalancerSettings
    _queue: Queue
    adopted_in: int = field(default=-1, init=False)
    """The reading of the addresses in which this process has adopted all in use. Only a process that had
    read the bus before knows what the bus has lost since."""

    async def run(self) -> None:
        """Never returns."""
        changed, incomplete = asyncio.Event(), asyncio.Event()

        def asking(ref: ObjectRef, service: Object) -> Asking | None:
            cloud = self._registry.cloud(ref.cluster)
            ours = selection.is_ours(service, (*self._settings.classes, *cloudterms.classes(cloud)))
            if is_provider_cluster(ref.cluster) or service.deleting or not ours:
                return None
            if not matches(ref.cluster, self._settings.clusters):
                return None
            balancer = cloudterms.balancer(service, cloud)
            name = balancer.range if balancer else ""
            offered = families_for(ref.cluster, self._settings.ranges, name)
            asked = demands.families(service.spec, offered)
            first = demands.primary(service.spec, asked)
            return Asking(ref.cluster, cloudterms.families(balancer, asked, first), name)

        services = View(self._bus, SERVICES.id, asking, lambda found: found.cluster)
        waking = Waking(self._store, self._queue, services)

        def on_change() -> None:
            changed.set()
            if self._store.needs_adoption():
                incomplete.set()

        end = self._store.on_change(on_change)
        try:
            async with asyncio.TaskGroup() as group:
                for name, act in (
                    ("addresses: services", services.run),
                    ("addresses: adopt", lambda: self._adopt(incomplete)),
                    ("addresses: wake", lambda: waking.run(changed)),
                    ("addresses: sweep", lambda: self._sweep(services)),
                ):
                    group.create_task(guard.kept(name, act), name=name)
        finally:
            end()

    async def _adopt(self, incomplete: asyncio.Event) -> None:
        """Adopt the addresses in use: once for each reading of them, and whenever the bus has lost some."""
        adoption = Adoption(
            self._bus, self._store, self._clusters, self._registry, self._states, self._settings
        )
        await self._store.bucket.complete.wait()
        if self.adopted_in != self._store.bucket.readings or self._store.needs_adoption():
            incomplete.set()
        while True:
            await incomplete.wait()
            incomplete.clear()
            reading = self._store.bucket.readings
            try:
                for ref in await adoption.adopt():
                    await self._queue.wish(subjects.key(ref), Wish(reason=Reason.ADDRESS))
                self.adopted_in = reading
            except WindowboxError as error:
                logger.warning("addresses: %s", error)
                await asyncio.sleep(_RETRY_LATER if self._store.is_complete() else _RETRY)
                incomplete.set()

    async def _sweep(self, services: View[Asking]) -> None:
        """Requeue Services periodically whose grace period is over, or that hold an address but are gone."""
        await services.complete.wait()
        await self._registry.complete.wait()
        while True:
            with contextlib.suppress(WindowboxError):
                if self._store.is_complete():
                    # A cluster that is not listed on the bus, or asleep, may still have any Service.
                    unlisted = {RUNTIME, *self._registry.served()} - services.listed | self._registry.asleep()
                    overdue = self._store.expired(datetime.now(UTC).timestamp())
                    for number, ref in enumerate(self._store.users()):
                        if number % _AT_ONCE == 0:
                            await asyncio.sleep(0)
                        gone = ref.cluster not in unlisted and services.get(ref) is None
                        if gone and not self._store.is_kept(ref):
                            overdue.append(ref)
                    for ref in dict.fromkeys(overdue):
                        with guard.isolated("addresses: sweep", ref):
                            await self._queue.remind(subjects.key(ref), Wish(reason=Reason.SWEEP))
            await asyncio.sleep(_SWEEP_INTERVAL)


class Waking:
    """Requeues waiting Services, which the store knows, and rejected ones, which follow from the Services."""

    def __init__(self, store: AddressStore, queue: Queue, services: View[Asking]) -> None:
        """`services` finds those of a cluster by its id."""
        self._store = store
        self._queue = queue
        self._services = services
        self._reached: set[Limit] | None = None
        self._turns: dict[str, deque[ObjectRef]] = {}

    async def run(self, changed: asyncio.Event) -> None:
        """Requeue after each change of the store; never returns."""
        await self._services.complete.wait()
        woken: set[ObjectRef] = set()
        due: dict[ObjectRef, None] = {}
        failures = 0
        while True:
            changed.clear()
            # The worker that should have requeued them may have died, or checked a moment before they waited.
            servable = set(self._store.servable())
            due |= dict.fromkeys([*sorted(servable - woken), *await self._admissible()])
            woken = servable
            try:
                for ref in list(due):
                    # Not `remind`: a pending wish may be of a run that has just found no address.
                    await self._queue.wish(subjects.key(ref), Wish(reason=Reason.ADDRESS))
                    del due[ref]
            except WindowboxError as error:
                failures += 1
                logger.info("addresses: %s", error)
                await asyncio.sleep(backoff(failures, first=0.2, longest=10))
                continue
            failures = 0
            await changed.wait()
            await asyncio.sleep(_PAUSE)

    async def _admissible(self) -> list[ObjectRef]:
        """Rejected Services to requeue: as many as there are places now below a limit of their cluster."""
        if not self._store.is_complete():
            return []
        before, self._reached = self._reached, set(self._store.index.reached)
        if before is None:  # limits may have been lower before this process started
            return await self._refused([ref for ref, _ in self._services.items()])
        return [
            ref
            for limit in sorted(before - self._reached, key=str)
            for ref in await self._refused(self._in_turn(limit[0]), self._store.index.places(limit) + _MORE)
        ]

    def _in_turn(self, cluster: str) -> Iterator[ObjectRef]:
        """All Services of a cluster, round-robin: each call continues where the last one has stopped."""
        turns = self._turns.setdefault(cluster, deque())
        for _ in range(2):  # the rest of the current round, and a whole round more
            while turns:
                yield turns.popleft()
            turns.extend(self._services.refs(cluster))
        if not turns:
            del self._turns[cluster]

    async def _refused(self, among: Iterable[ObjectRef], most: float = math.inf) -> list[ObjectRef]:
        """Rejected Services that no limit keeps from an address."""
        found: dict[ObjectRef, None] = {}
        index = self._store.index
        for number, ref in enumerate(among):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            asking = self._services.get(ref)
            if asking is None or self._store.waiter(ref) or (ref.cluster, None) in index.reached:
                continue
            lacking = set(asking.families) - {family(address) for address in index.holdings.of(ref)}
            wanted = [(ref.cluster, of, asking.range) for of in lacking]
            if any(index.total(*one) and index.below_quota(*one) for one in wanted):
                found[ref] = None
                if len(found) >= most:
                    break
        return list(found)
