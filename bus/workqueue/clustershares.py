"""A handler that gives clusters which have joined, or control planes, shares of a pool's slots."""

from __future__ import annotations

from collections.abc import Callable

from bus import subjects
from bus.messages import Result
from bus.workqueue.pool import Handler, Item, Outcome, RequeueAfter
from windowbox.clients.kubernetes.bulkhead import Bulkhead
from windowbox.errors import Waiting
from windowbox.models.refs import RUNTIME, ObjectRef

_AGAIN = 5.0
"""Seconds until an item is taken up again that was stopped, since its cluster is slow."""


class ClusterShares:
    """Hands items to another handler, those of a slow cluster only a few at once.

    Who runs the API server of a cluster that has joined may have it answer late, or never. The runtime
    cluster's items always have a turn: where it is slow, there is nothing to be done for anybody. Pools whose
    items are in the runtime cluster but reach others say with `sharing` who shares slots.
    """

    def __init__(
        self, handler: Handler, slots: int, sharing: Callable[[ObjectRef], str] | None = None
    ) -> None:
        self._handler = handler
        self._bulkhead = Bulkhead(slots)
        self._sharing = sharing or _cluster

    async def handle(self, item: Item) -> Outcome:
        sharer = self._sharing(subjects.ref(item.key))
        if sharer == RUNTIME:
            return await self._handler.handle(item)
        try:
            async with self._bulkhead.turn("", sharer, item.key):
                return await self._handler.handle(item)
        except Waiting as waiting:
            note = f"waiting for a turn: runs of {sharer} take long, or others that do have all turns"
            return Outcome(Result.WAITING, RequeueAfter(item.wish, waiting.retry_after or _AGAIN), note)
        except TimeoutError:
            again = item.wish.model_copy(update={"insist": True})
            note = f"stopped, because runs of {sharer} take too long"
            return Outcome(Result.WAITING, RequeueAfter(again, _AGAIN), note)

    async def quarantine(self, item: Item) -> None:
        await self._handler.quarantine(item)


def _cluster(ref: ObjectRef) -> str:
    return ref.cluster
