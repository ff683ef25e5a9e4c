"""The pool `machinedeployment`, put together."""

from __future__ import annotations

from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from windowbox.models.refs import ObjectRef
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.machines.deployment.mapping import MachineDeploymentMapping
from workers.machines.deployment.runs import MachineDeploymentRuns
from workers.machines.views import MachineViews


def enabled(common: Common) -> bool:
    """Whether windowbox serves them; otherwise Gardener's machine-controller-manager does."""
    return common.kinds.machines.mode == "full"


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    runs = MachineDeploymentRuns(common.clusters, views)
    handler = ReconcileHandler(bus, common.clusters, runs, views.complete)
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
        router=Router(bus, Queue(bus, row.pool), MachineDeploymentMapping(views)),
        tasks=views.tasks,
    )


def _control_plane(ref: ObjectRef) -> str:
    """Whose MachineDeployments share slots: those of one namespace."""
    return f"{ref.cluster}/{ref.namespace}"
