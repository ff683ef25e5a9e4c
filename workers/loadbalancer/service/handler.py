"""Items of the pool `loadbalancer`, handed to the runs of Services."""

from __future__ import annotations

from bus import subjects
from bus.connection import Bus
from bus.messages import StatusIntent
from bus.pool import Item, Outcome
from windowbox.clients.clusters import Clusters
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service import eventmessages
from workers.loadbalancer.service.runs import ServiceRuns
from workers.loadbalancer.service.world import ServiceWorld
from workers.recorder_live import LiveRecorder


class ServiceHandler:
    """Runs of Services for items of the queue."""

    def __init__(
        self, bus: Bus, clusters: Clusters, world: ServiceWorld, store: AddressStore, runs: ServiceRuns
    ) -> None:
        self._bus = bus
        self._clusters = clusters
        self._world = world
        self._store = store
        self._runs = runs

    async def handle(self, item: Item) -> Outcome:
        await self._store.complete.wait()
        return await self._runs.run(subjects.ref(item.key), item.wish, self._recorder(item))

    async def quarantine(self, item: Item) -> None:
        ref, recorder = subjects.ref(item.key), self._recorder(item)
        found = await recorder.read(ref)
        if found is None:
            return
        _, sequence = await self._world.reported(ref, recorder)
        intent = StatusIntent(uid=found.uid, patch={}, events=(eventmessages.quarantine(),))
        await self._world.report(ref, intent, sequence, recorder)

    def _recorder(self, item: Item) -> LiveRecorder:
        return LiveRecorder(self._bus, self._clusters, item)
