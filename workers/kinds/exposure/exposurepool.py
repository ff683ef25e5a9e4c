"""The pool `exposure`, put together."""

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
        return (
            ref
            for ref in owner_index.of_machine_namespace(made.namespace)
            if made.name in _names(made.kind, ref.name)
        )

    return Serving(
        KIND,
        ExposureActuator(common.targets),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )


def _names(kind: str, exposure: str) -> list[str]:
    """What objects of a kind that an exposure has made are called."""
    if kind == SERVICES.id:
        return [exposureobjects.service_name(exposure)]
    return [exposureobjects.slice_name(exposure, family) for family in exposureobjects.FAMILIES]
