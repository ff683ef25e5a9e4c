"""Items of the pool `heartbeat`: there is one, the Lease."""

from __future__ import annotations

import logging

from bus import subjects
from bus.connection import Bus
from bus.messages import Result
from bus.pool import Item, Outcome
from windowbox.clients.clusters import Clusters
from windowbox.models.refs import ObjectRef
from workers.heartbeat.runs import Beats
from workers.recorder_live import LiveRecorder

logger = logging.getLogger(__name__)


class HeartbeatHandler:
    """Beats for items of the queue."""

    def __init__(self, bus: Bus, clusters: Clusters, lease: ObjectRef, beats: Beats) -> None:
        self._bus = bus
        self._clusters = clusters
        self._lease = lease
        self._beats = beats

    async def handle(self, item: Item) -> Outcome:
        ref = subjects.ref(item.key)
        if ref != self._lease:
            return Outcome(Result.NOT_OURS)
        return await self._beats.run(ref, item.wish, LiveRecorder(self._bus, self._clusters, item))

    async def quarantine(self, item: Item) -> None:
        logger.error("%s: not renewed, because trying to has ended this process", self._lease)
