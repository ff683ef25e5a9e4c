"""The pool `machine`, put together."""

from __future__ import annotations

from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from windowbox.models.refs import ObjectRef
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.machines.machine.mapping import MachineMapping
from workers.machines.machine.providerclusters import ProviderClusters
from workers.machines.machine.runs import MachineRuns
from workers.machines.machine.shoots import JoinWatch, Shoots
from workers.machines.machine.views import MachineViews


def enabled(common: Common) -> bool:
    return common.kinds.machines.mode != "off"


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    shoots = Shoots(common.registry, common.targets, views)
    providers = ProviderClusters(common.targets)
    runs = MachineRuns(common.targets, shoots, views, common.kinds.machines, providers)
    handler = ReconcileHandler(bus, common.clusters, runs, views.complete)
    queue = Queue(bus, row.pool)
    joins = JoinWatch(common.registry, views, queue)
    return Parts(
        pool=Pool(
            bus,
            row.pool,
            handler,
            concurrency=work.concurrency,
            ack_wait=work.ack_wait,
            # A tenant may hold up the API server of its Shoot: that Shoot must not take all slots.
            sharing=_control_plane,
        ),
        router=Router(bus, queue, MachineMapping(views)),
        tasks={**views.tasks, "shoots that join": joins.run},
    )


def _control_plane(ref: ObjectRef) -> str:
    """Whose objects share slots: those of one namespace; nodes have none, and are one Shoot's."""
    return f"{ref.cluster}/{ref.namespace}"
