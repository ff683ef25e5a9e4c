"""The pool `machinedeployment`, put together."""

from __future__ import annotations

from bus.workqueue.clustershares import ClusterShares
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from windowbox.models.refs import ObjectRef
from workers.core.handler import ReconcilingHandler
from workers.core.serving import Common, Parts
from workers.machines.deployment.mapping import MachineDeploymentMapping
from workers.machines.deployment.runs import MachineDeploymentRuns
from workers.machines.views import MachineViews


def enabled(common: Common) -> bool:
    """Whether windowbox serves them; otherwise Gardener's machine-controller-manager does."""
    return common.kinds.machines.mode == "full"


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    runs = MachineDeploymentRuns(bus, common.clusters, views)
    reconciling = ReconcilingHandler(bus, common.clusters, runs, views.complete)
    # Nodes of one slow Shoot, whose API server its tenant may hold up, must not take all slots.
    handler = ClusterShares(reconciling, work.concurrency, _control_plane)
    return Parts(
        pool=Pool(bus, row.pool, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, Queue(bus, row.pool), MachineDeploymentMapping(views)),
        tasks=views.tasks,
    )


def _control_plane(ref: ObjectRef) -> str:
    """Whose MachineDeployments share slots: those of one namespace."""
    return f"{ref.cluster}/{ref.namespace}"
