"""Requeues Services that can have an address by now, though they wait for one or were rejected."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bus import subjects
from bus.messages import Reason, Wish
from bus.outcomes import backoff
from bus.views import View
from bus.workqueue.queue import Queue
from windowbox.errors import WindowboxError
from windowbox.models.loadbalancers import Family, family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam.index import Limit
from workers.loadbalancer.ipam.store import AddressStore

logger = logging.getLogger(__name__)

_PAUSE = 0.1
"""Seconds for which changes are batched: workers have mostly requeued the right Services themselves."""
_AT_ONCE = 500
_MORE = 8
"""Services that are requeued beyond the free places: some may ask for none, because they cannot be served."""


class Asking(NamedTuple):
    """A Service that asks for a load balancer."""

    cluster: str
    families: tuple[Family, ...]


class Waking:
    """Requeues from two sources: the store knows who waits; who was rejected follows from the Services."""

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
        for _ in range(2):
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
                await asyncio.sleep(0)  # there may be tens of thousands
            asking = self._services.get(ref)
            if asking is None or self._store.waiter(ref) or (ref.cluster, None) in index.reached:
                continue
            lacking = set(asking.families) - {family(address) for address in index.holdings.of(ref)}
            if any(index.total(ref.cluster, of) and index.below_quota(ref.cluster, of) for of in lacking):
                found[ref] = None
                if len(found) >= most:
                    break
        return list(found)
