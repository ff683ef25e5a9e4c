"""Items of the pool `ingress`, handed to the runs of Ingresses."""

from __future__ import annotations

from bus import subjects
from bus.connection import Bus
from bus.pool import Item, Outcome
from windowbox.clients.clusters import Clusters
from workers.ingress.runs import IngressRuns
from workers.live import LiveDoors


class IngressHandler:
    """Runs of Ingresses for items of the queue."""

    def __init__(self, bus: Bus, clusters: Clusters, runs: IngressRuns) -> None:
        self._bus = bus
        self._clusters = clusters
        self._runs = runs

    async def handle(self, item: Item) -> Outcome:
        return await self._runs.run(subjects.ref(item.key), item.wish, self._doors(item))

    async def set_aside(self, item: Item) -> None:
        await self._runs.set_aside(subjects.ref(item.key), self._doors(item))

    def _doors(self, item: Item) -> LiveDoors:
        return LiveDoors(self._bus, self._clusters, item)
