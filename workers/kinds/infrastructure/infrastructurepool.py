"""The pool `infrastructure`: events of its objects requeue it; one process looks for orphans."""

from __future__ import annotations

from collections.abc import Iterator

from windowbox.kinds import Served
from windowbox.models.refs import IP_POOLS, NAMESPACES, ObjectRef
from workers.core.owned.ownedorphans import OwnedOrphans
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.serving import Common, Serving
from workers.kinds.infrastructure import infrastructureobjects
from workers.kinds.infrastructure.infrastructureactuator import KIND, InfrastructureActuator


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(ref: ObjectRef) -> Iterator[ObjectRef]:
        match ref.kind:
            case NAMESPACES.id:
                yield from owner_index.of_machine_namespace(ref.name)
            case IP_POOLS.id:
                yield from owner_index.of_shoot(infrastructureobjects.technical_id(ref.name))
            case _:
                yield from owner_index.of_machine_namespace(ref.namespace)

    orphans = OwnedOrphans(common.bus, common.clusters, common.targets)
    return Serving(
        KIND,
        InfrastructureActuator(common.targets, common.kinds.infrastructure),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
        leased={f"drift.{KIND.pool}": orphans.run},
    )
