"""The pool `ingress`, put together."""

from __future__ import annotations

from bus.pool import Pool
from bus.queue import Queue
from bus.routing import Router
from windowbox.clients.clustershares import ClusterShares
from windowbox.kinds import Served
from workers.handler import ReconcilingHandler
from workers.ingress.mapping import IngressMapping
from workers.ingress.runs import IngressRuns
from workers.ingress.views import IngressViews
from workers.serving import Common, Parts


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, IngressViews(common.bus)
    mapping = IngressMapping(views)
    runs = IngressRuns(bus, common.clusters, common.world, common.targets, views)
    handler = ClusterShares(ReconcilingHandler(bus, common.clusters, runs), work.concurrency)
    return Parts(
        pool=Pool(bus, row.pool, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, Queue(bus, row.pool), mapping, ignores=mapping.ignores),
        tasks=views.tasks,
    )
