"""The pool `machinedeployment`, put together."""

from __future__ import annotations

from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from windowbox.models.refs import ObjectRef
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.machines.deployment.deploymentmapping import MachineDeploymentMapping
from workers.machines.deployment.deploymentreconciler import MachineDeploymentReconciler
from workers.machines.views import MachineViews


def enabled(common: Common) -> bool:
    """Whether windowbox serves them; otherwise Gardener's machine-controller-manager does."""
    return common.kinds.machines.mode == "full"


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    reconciler = MachineDeploymentReconciler(common.clusters, views)
    handler = ReconcileHandler(bus, common.clusters, reconciler, views.complete)

    def control_plane(ref: ObjectRef) -> str:
        # A tenant may hold up the API server of its Shoot: one Shoot must not take all slots.
        return f"{ref.cluster}/{ref.namespace}"

    return Parts(
        pool=Pool(
            bus,
            row.pool,
            handler,
            concurrency=work.concurrency,
            ack_wait=work.ack_wait,
            sharing=control_plane,
        ),
        router=Router(bus, Queue(bus, row.pool), MachineDeploymentMapping(views)),
        tasks=views.tasks,
    )
