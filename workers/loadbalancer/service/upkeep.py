"""Upkeep of allocations: adoption of addresses in use, garbage collection, and the queue for addresses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime

from bus import subjects
from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.messages import Reason, Wish
from bus.transport.connection import Bus
from bus.views import View
from bus.workqueue.queue import Queue
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef, is_provider_cluster
from windowbox.settings.lbsettings import LoadBalancerSettings, families_for
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service.adoption import Adoption
from workers.loadbalancer.service.waking import Asking, Waking
from workers.loadbalancer.spec import demands, selection

logger = logging.getLogger(__name__)

_SWEEP_INTERVAL = 60.0
_AT_ONCE = 500
_RETRY = 1.0
_RETRY_LATER = 5.0
"""Seconds until adoption is retried while new addresses can be allocated all the same."""


class AddressUpkeep:
    """Keeps the address store in line with the Services. For the holder of the lease `addresses`."""

    def __init__(
        self,
        bus: Bus,
        clusters: Clusters,
        registry: Registry,
        store: AddressStore,
        states: States,
        settings: LoadBalancerSettings,
        queue: Queue,
    ) -> None:
        self._bus = bus
        self._clusters = clusters
        self._registry = registry
        self._store = store
        self._states = states
        self._settings = settings
        self._queue = queue
        self.adopted_in = -1
        """The reading of the addresses in which this process has adopted all in use. Only a process that had
        read the bus before knows what the bus has lost since."""

    async def run(self) -> None:
        """Never returns."""
        changed, incomplete = asyncio.Event(), asyncio.Event()
        services = View(self._bus, SERVICES.id, self._asking, lambda asking: asking.cluster)
        waking = Waking(self._store, self._queue, services)

        def on_change() -> None:
            changed.set()
            if self._store.needs_adoption():
                incomplete.set()

        end = self._store.on_change(on_change)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(services.run(), name="addresses: services")
                group.create_task(self._adopt(incomplete), name="addresses: adopt")
                group.create_task(waking.run(changed), name="addresses: wake")
                group.create_task(self._sweep(services), name="addresses: sweep")
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
                    overdue = [kept.ref for kept in self._store.expired(datetime.now(UTC).timestamp())]
                    for number, ref in enumerate(self._store.users()):
                        if number % _AT_ONCE == 0:
                            await asyncio.sleep(0)  # there may be tens of thousands
                        gone = ref.cluster not in unlisted and services.get(ref) is None
                        if gone and not self._store.is_kept(ref):
                            overdue.append(ref)
                    for ref in dict.fromkeys(overdue):
                        await self._queue.remind(subjects.key(ref), Wish(reason=Reason.SWEEP))
            await asyncio.sleep(_SWEEP_INTERVAL)

    def _asking(self, ref: ObjectRef, service: Object) -> Asking | None:
        if is_provider_cluster(ref.cluster) or service.deleting:
            return None
        if not selection.is_ours(service, self._settings.classes):
            return None
        offered = families_for(ref.cluster, self._settings.ranges)
        return Asking(ref.cluster, demands.families(service.spec, offered))
