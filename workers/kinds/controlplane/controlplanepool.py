"""The pool `controlplane`, put together."""

from __future__ import annotations

from collections.abc import Iterable

from windowbox.kinds import Served
from windowbox.models.refs import API_SERVER, MANAGED_RESOURCES, PLANE_DEPLOYMENTS, ObjectRef
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.serving import Common, Serving
from workers.kinds.controlplane import controlplanesite
from workers.kinds.controlplane.controlplaneactuator import KIND, ControlPlaneActuator


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(ref: ObjectRef) -> Iterable[ObjectRef]:
        if ref.kind == MANAGED_RESOURCES.id and not ref.name.startswith("extension-controlplane-"):
            return ()
        if ref.kind == PLANE_DEPLOYMENTS.id and ref.name != API_SERVER:
            return ()
        return owner_index.in_namespace(ref.cluster, ref.namespace)

    return Serving(
        KIND,
        ControlPlaneActuator(common.targets, common.kinds),
        owners=owners,
        awaits_status=lambda ref, found: ref.name == controlplanesite.WEBHOOKS or found.deleting,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )
