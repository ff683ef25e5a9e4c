"""The pool `ingress`, put together."""

from __future__ import annotations

from bus.pool import Pool
from bus.queue import Queue
from bus.routing import Router
from workers.handler import ReconcilingHandler
from workers.ingress.mapping import IngressMapping
from workers.ingress.runs import IngressRuns
from workers.ingress.views import IngressViews
from workers.serving import Common, Parts

POOL = "ingress"


async def assembled(common: Common) -> Parts:
    bus, work, views = common.bus, common.work, IngressViews(common.bus)
    runs = IngressRuns(bus, common.clusters, common.world, common.targets, views)
    handler = ReconcilingHandler(bus, common.clusters, runs)
    return Parts(
        pool=Pool(bus, POOL, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, Queue(bus, POOL), IngressMapping(views)),
        tasks=views.tasks,
    )
