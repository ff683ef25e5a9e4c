"""The pool `exposure`: events of its Services and EndpointSlices requeue an exposure."""

from __future__ import annotations

from collections.abc import Iterator

from windowbox.kinds import Served
from windowbox.models.refs import SERVICES, ObjectRef
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.serving import Common, Serving
from workers.kinds.exposure import exposureobjects
from workers.kinds.exposure.exposureactuator import KIND, ExposureActuator


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(made: ObjectRef) -> Iterator[ObjectRef]:
        for ref in owner_index.of_machine_namespace(made.namespace):
            names = [exposureobjects.service_name(ref.name)]
            if made.kind != SERVICES.id:
                names = [exposureobjects.slice_name(ref.name, one) for one in exposureobjects.FAMILIES]
            if made.name in names:
                yield ref

    return Serving(
        KIND,
        ExposureActuator(common.targets),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )
