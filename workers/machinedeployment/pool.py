"""The pool `machinedeployment`, put together."""

from __future__ import annotations

from bus.pool import Pool
from bus.queue import Queue
from bus.routing import Router
from windowbox.clients.clustershares import ClusterShares
from windowbox.kinds import Served
from windowbox.models.refs import ObjectRef
from workers.handler import ReconcilingHandler
from workers.machinedeployment.mapping import MachineDeploymentMapping
from workers.machinedeployment.runs import MachineDeploymentRuns
from workers.machines.views import MachineViews
from workers.serving import Common, Parts


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
