"""The pool `bastion`: events of its objects requeue a Bastion."""

from __future__ import annotations

from collections.abc import Iterator

from windowbox.kinds import Served
from windowbox.models.refs import NAMESPACES, ObjectRef
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.serving import Common, Serving
from workers.kinds.bastion import bastionobjects
from workers.kinds.bastion.bastionactuator import KIND, BastionActuator


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(ref: ObjectRef) -> Iterator[ObjectRef]:
        if ref.kind == NAMESPACES.id:
            yield from owner_index.of_machine_namespace(ref.name)
        elif name := bastionobjects.bastion(ref.name):
            yield from (
                owner for owner in owner_index.of_machine_namespace(ref.namespace) if owner.name == name
            )

    return Serving(
        KIND,
        BastionActuator(common.targets),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )
