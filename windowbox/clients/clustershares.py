"""A handler that gives clusters which have joined shares of a pool's slots."""

from __future__ import annotations

from bus import subjects
from bus.messages import Result
from bus.pool import Handler, Item, Outcome, RequeueAfter
from windowbox.clients.bulkhead import Bulkhead
from windowbox.errors import Waiting
from windowbox.models.refs import RUNTIME

_AGAIN = 5.0
"""Seconds until an item is taken up again that was stopped, since its cluster is slow."""


class ClusterShares:
    """Hands items to another handler, those of a slow cluster only a few at once.

    Who runs the API server of a cluster that has joined may have it answer late, or never. The runtime
    cluster's items always have a turn: where it is slow, there is nothing to be done for anybody.
    """

    def __init__(self, handler: Handler, slots: int) -> None:
        self._handler = handler
        self._bulkhead = Bulkhead(slots)

    async def handle(self, item: Item) -> Outcome:
        cluster = subjects.ref(item.key).cluster
        if cluster == RUNTIME:
            return await self._handler.handle(item)
        try:
            async with self._bulkhead.turn("", cluster, item.key):
                return await self._handler.handle(item)
        except Waiting as waiting:
            note = f"waiting for a turn: cluster {cluster} answers slowly, or others that do have all turns"
            return Outcome(Result.WAITING, RequeueAfter(item.wish, waiting.retry_after or _AGAIN), note)
        except TimeoutError:
            again = item.wish.model_copy(update={"insist": True})
            note = f"stopped, because cluster {cluster} answers too slowly"
            return Outcome(Result.WAITING, RequeueAfter(again, _AGAIN), note)

    async def quarantine(self, item: Item) -> None:
        await self._handler.quarantine(item)
