"""Items of the pool `loadbalancer`, handed to the runs of Services."""

from __future__ import annotations

from bus import subjects
from bus.connection import Bus
from bus.messages import StatusIntent
from bus.pool import Item, Outcome
from windowbox.clients.clusters import Clusters
from workers.live import LiveDoors
from workers.loadbalancer import words
from workers.loadbalancer.book import Book
from workers.loadbalancer.runs import ServiceRuns
from workers.loadbalancer.world import ServiceWorld


class ServiceHandler:
    """Runs of Services for items of the queue."""

    def __init__(
        self, bus: Bus, clusters: Clusters, world: ServiceWorld, book: Book, runs: ServiceRuns
    ) -> None:
        self._bus = bus
        self._clusters = clusters
        self._world = world
        self._book = book
        self._runs = runs

    async def handle(self, item: Item) -> Outcome:
        await self._book.complete.wait()
        return await self._runs.run(subjects.ref(item.key), item.wish, self._doors(item))

    async def set_aside(self, item: Item) -> None:
        ref, doors = subjects.ref(item.key), self._doors(item)
        found = await doors.read(ref)
        if found is None:
            return
        _, sequence = await self._world.reported(ref, doors)
        intent = StatusIntent(uid=found.uid, patch={}, events=(words.set_aside(),))
        await self._world.report(ref, intent, sequence, doors)

    def _doors(self, item: Item) -> LiveDoors:
        return LiveDoors(self._bus, self._clusters, item)
