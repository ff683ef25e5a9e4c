"""The pool `machineset`, put together."""

from __future__ import annotations

from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.machines.set.setmapping import MachineSetMapping
from workers.machines.set.setreconciler import MachineSetReconciler
from workers.machines.views import MachineViews


def enabled(common: Common) -> bool:
    """Whether windowbox creates Machines; otherwise Gardener's machine-controller-manager does."""
    return common.kinds.machines.mode == "full"


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    reconciler = MachineSetReconciler(common.clusters, views, common.kinds.machines)
    handler = ReconcileHandler(bus, common.clusters, reconciler, views.complete)
    return Parts(
        pool=Pool(bus, row.pool, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, Queue(bus, row.pool), MachineSetMapping(views)),
        tasks=views.tasks,
    )
