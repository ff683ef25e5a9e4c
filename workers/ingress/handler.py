"""Items of the pool `ingress`, handed to the runs of Ingresses."""

from __future__ import annotations

from bus import subjects
from bus.connection import Bus
from bus.pool import Item, Outcome
from windowbox.clients.clusters import Clusters
from workers.ingress.runs import IngressRuns
from workers.recorder_live import LiveRecorder


class IngressHandler:
    """Runs of Ingresses for items of the queue."""

    def __init__(self, bus: Bus, clusters: Clusters, runs: IngressRuns) -> None:
        self._bus = bus
        self._clusters = clusters
        self._runs = runs

    async def handle(self, item: Item) -> Outcome:
        return await self._runs.run(subjects.ref(item.key), item.wish, self._recorder(item))

    async def quarantine(self, item: Item) -> None:
        await self._runs.quarantine(subjects.ref(item.key), self._recorder(item))

    def _recorder(self, item: Item) -> LiveRecorder:
        return LiveRecorder(self._bus, self._clusters, item)
