"""The pool `worker`, put together."""

from __future__ import annotations

from windowbox.kinds import Served
from workers.owned.ownerindex import OwnerIndex
from workers.serving import Common, Serving
from workers.worker.actuator import KIND, WorkerActuator


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)
    return Serving(
        KIND,
        WorkerActuator(common.bus, common.targets, common.kinds.machines),
        # All machines of a namespace belong to the Worker there.
        owners=lambda ref: owner_index.in_namespace(ref.cluster, ref.namespace),
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )
