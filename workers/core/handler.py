"""The handler that all pools share: from an item of the work queue to a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from bus import subjects
from bus.clusters.clusters import Clusters
from bus.messages import EventIntent, Wish
from bus.transport.connection import Bus
from bus.workqueue.pool import Item, Outcome
from windowbox.kinds import RESOURCES
from windowbox.models.refs import ObjectRef
from workers.core.recorder import Recorder
from workers.core.recorder_live import LiveRecorder


class Reconciler(Protocol):
    """What the objects of one pool need done."""

    async def run(self, ref: ObjectRef, wish: Wish, recorder: Recorder) -> Outcome:
        """Reconcile the object as it is now, whatever the wish once meant."""

    async def quarantine(self, ref: ObjectRef, recorder: Recorder) -> None:
        """Report that the object is left alone."""


def quarantined(ref: ObjectRef) -> EventIntent:
    """The Event that tells people so."""
    kind = RESOURCES[ref.kind].kind
    note = (
        f"set aside, because working on this {kind} ended the worker process three times in a row; "
        "it is taken up again when it changes, or in ten minutes"
    )
    return EventIntent(type="Warning", reason="SetAside", note=note)


class ReconcilingHandler:
    """Hands each item to a reconciler, with a recorder that writes to the item's record."""

    def __init__(
        self,
        bus: Bus,
        clusters: Clusters,
        reconciler: Reconciler,
        ready: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`ready` returns once everything that runs depend on has been read from the bus."""
        self._bus = bus
        self._clusters = clusters
        self._reconciler = reconciler
        self._ready = ready

    async def handle(self, item: Item) -> Outcome:
        if self._ready:
            await self._ready()
        return await self._reconciler.run(subjects.ref(item.key), item.wish, self._recorder(item))

    async def quarantine(self, item: Item) -> None:
        await self._reconciler.quarantine(subjects.ref(item.key), self._recorder(item))

    def _recorder(self, item: Item) -> LiveRecorder:
        return LiveRecorder(self._bus, self._clusters, item)
