"""The pools of Extensions, one per type: events of their ManagedResources requeue them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bus.views import View
from windowbox.kinds import Served
from windowbox.models.objects import Object
from windowbox.models.refs import EXTENSIONS, ObjectRef
from workers.core.lifecycle.actuators import Actuator
from workers.core.owned.targets import TargetClusters
from workers.core.serving import Common, Serving
from workers.kinds.extension import extensionactuator
from workers.kinds.extension.extensionactuator import KINDS, AfterWorkerActuator, SeedActuator, ShootActuator


class _NamespaceKey(NamedTuple):
    cluster: str
    namespace: str


_ACTUATORS: dict[str, Callable[[TargetClusters, str], Actuator]] = {
    extensionactuator.SEED: SeedActuator,
    extensionactuator.SHOOT: ShootActuator,
    extensionactuator.AFTER_WORKER: AfterWorkerActuator,
}


def serving(common: Common, row: Served) -> Serving:
    def extract(ref: ObjectRef, extension: Object) -> _NamespaceKey | None:
        return _NamespaceKey(ref.cluster, ref.namespace) if extension.spec.get("type") == row.type else None

    def owners(ref: ObjectRef) -> list[ObjectRef]:
        # The type is the name of the ManagedResource. An Extension may have any name.
        return owner_index.refs(_NamespaceKey(ref.cluster, ref.namespace)) if ref.name == row.type else []

    owner_index: View[_NamespaceKey] = View(common.bus, EXTENSIONS.id, extract, index=lambda home: home)
    return Serving(
        KINDS[row.type],
        _ACTUATORS[row.type](common.targets, row.type),
        owners=owners,
        known=owner_index.complete.wait,
        tasks={"owner index": owner_index.run},
    )
