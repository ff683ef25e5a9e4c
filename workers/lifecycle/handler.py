"""Items of a kind's pool, handed to its life cycle."""

from __future__ import annotations

from bus import subjects
from bus.connection import Bus
from bus.messages import EventIntent
from bus.pool import Item, Outcome
from windowbox.clients.clusters import Clusters
from windowbox.errors import TransientError
from workers import clock
from workers.lifecycle import operations, statuses
from workers.lifecycle.reporting import with_report
from workers.lifecycle.runs import LifeCycle
from workers.lifecycle.world import World
from workers.recorder_live import LiveRecorder


class LifeCycleHandler:
    """Runs the life cycle of one kind for items of its queue."""

    def __init__(self, bus: Bus, clusters: Clusters, world: World, life: LifeCycle) -> None:
        self._bus = bus
        self._clusters = clusters
        self._world = world
        self._life = life

    async def handle(self, item: Item) -> Outcome:
        await self._world.complete()
        return await self._life.run(subjects.ref(item.key), item.wish, self._recorder(item))

    async def quarantine(self, item: Item) -> None:
        ref, recorder = subjects.ref(item.key), self._recorder(item)
        found = await recorder.read(ref)
        if found is None:
            return
        reported, sequence = await self._world.reported(ref, recorder)
        object = with_report(found, reported)
        operation = operations.operation(object)
        flow = operations.flow(object, self._life.kind.finalizer, migrates=self._life.kind.migrates)
        error = TransientError(
            "set aside, because working on this object ended the worker process three times in a row; "
            "it is taken up again when the object changes, or in ten minutes"
        )
        now = await clock.now(recorder)
        patch = statuses.failed(operation, self._life.kind.words.of(flow), error, object.generation, now)
        event = EventIntent(type="Warning", reason="SetAside", note=str(error))
        await self._life.reporter(ref, recorder, object, sequence).report(patch, event)

    def _recorder(self, item: Item) -> LiveRecorder:
        return LiveRecorder(self._bus, self._clusters, item)
