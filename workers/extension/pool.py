"""The pools of Extensions, one for each type, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bus.views import View
from windowbox.models.objects import Object
from windowbox.models.refs import EXTENSIONS, MANAGED_RESOURCES, ObjectRef
from workers.extension import wanted
from workers.extension.actuators import KINDS, AfterWorkerActuator, SeedActuator, ShootActuator
from workers.lifecycle.kinds import Actuator
from workers.owned.targets import TargetClusters
from workers.serving import Common, Serving


class _Home(NamedTuple):
    cluster: str
    namespace: str


def _serving(type_: str, actuator: Callable[[TargetClusters, str], Actuator]) -> Callable[[Common], Serving]:
    def extract(ref: ObjectRef, extension: Object) -> _Home | None:
        return _Home(ref.cluster, ref.namespace) if extension.spec.get("type") == type_ else None

    def serving(common: Common) -> Serving:
        homes: View[_Home] = View(common.bus, EXTENSIONS.id, extract, index=lambda home: home)

        def owners(ref: ObjectRef) -> list[ObjectRef]:
            # The type is the name of what is made. An Extension may have any name.
            return homes.refs(_Home(ref.cluster, ref.namespace)) if ref.name == type_ else []

        return Serving(
            KINDS[type_],
            actuator(common.targets, type_),
            made=(MANAGED_RESOURCES,),
            owners=owners,
            known=homes.complete.wait,
            tasks={"homes": homes.run},
        )

    return serving


SERVINGS: dict[str, Callable[[Common], Serving]] = {
    wanted.SEED: _serving(wanted.SEED, SeedActuator),
    wanted.SHOOT: _serving(wanted.SHOOT, ShootActuator),
    wanted.AFTER_WORKER: _serving(wanted.AFTER_WORKER, AfterWorkerActuator),
}
