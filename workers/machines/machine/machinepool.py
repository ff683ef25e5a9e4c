"""The pool `machine`: its reconciler, its mapping and its views, connected."""

from __future__ import annotations

from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from windowbox.models.refs import ObjectRef
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.machines.machine.machinemapping import MachineMapping
from workers.machines.machine.machinereconciler import MachineReconciler
from workers.machines.machine.machineviews import JoinWatch, MachineViews, ProviderClusters, Shoots


def enabled(common: Common) -> bool:
    return common.kinds.machines.mode != "off"


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    shoots = Shoots(common.registry, common.targets, views)
    providers = ProviderClusters(common.targets)
    reconciler = MachineReconciler(common.targets, shoots, views, common.kinds.machines, providers)
    queue = Queue(bus, row.pool)
    joins = JoinWatch(common.registry, views, queue)

    def control_plane(ref: ObjectRef) -> str:
        # A tenant may slow down its Shoot's API server: that Shoot must not take all slots. Nodes have no
        # namespace, and a cluster's nodes are one Shoot's.
        return f"{ref.cluster}/{ref.namespace}"

    return Parts(
        pool=Pool(
            bus,
            row.pool,
            ReconcileHandler(bus, common.clusters, reconciler, views.complete),
            concurrency=work.concurrency,
            ack_wait=work.ack_wait,
            sharing=control_plane,
        ),
        router=Router(bus, queue, MachineMapping(views)),
        tasks={**views.tasks, "shoots that join": joins.run},
    )
