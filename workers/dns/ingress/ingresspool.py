"""The pool `ingress`, put together."""

from __future__ import annotations

from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.dns.ingress.ingressmapping import IngressMapping, IngressViews
from workers.dns.ingress.ingressreconciler import IngressReconciler


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, IngressViews(common.bus)
    mapping = IngressMapping(views)
    runs = IngressReconciler(common.clusters, common.world, common.targets, views)
    handler = ReconcileHandler(bus, common.clusters, runs)
    return Parts(
        pool=Pool(
            bus,
            row.pool,
            handler,
            concurrency=work.concurrency,
            ack_wait=work.ack_wait,
            sharing=lambda ref: ref.cluster,
        ),
        router=Router(bus, Queue(bus, row.pool), mapping, ignores=mapping.ignores),
        tasks=views.tasks,
    )
