"""The pool `worker`, put together."""

from __future__ import annotations

from collections.abc import Iterable

from windowbox.kinds import Served
from windowbox.models.refs import MACHINE_CONTROLLER_MANAGER, MANAGED_RESOURCES, PLANE_DEPLOYMENTS, ObjectRef
from workers.core.cloudaccounts import CloudAccounts
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.serving import Common, Serving
from workers.machines.worker.workeractuator import KIND, MANAGER_BUNDLE, WorkerActuator


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)
    conditions = common.kinds.health.conditions

    def owners(ref: ObjectRef) -> Iterable[ObjectRef]:
        """All machines of a namespace belong to the Worker there."""
        watched = {MANAGED_RESOURCES.id: MANAGER_BUNDLE, PLANE_DEPLOYMENTS.id: MACHINE_CONTROLLER_MANAGER}
        if (name := watched.get(ref.kind)) and (conditions == "short" or ref.name != name):
            return ()
        return owner_index.in_namespace(ref.cluster, ref.namespace)

    return Serving(
        KIND,
        WorkerActuator(
            common.bus,
            common.targets,
            common.kinds.machines,
            CloudAccounts(common.bus, common.clusters),
            conditions,
        ),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )
