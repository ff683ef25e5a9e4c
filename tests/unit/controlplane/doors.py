"""A recorder for runs of a ControlPlane, with a simulated API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES, MANAGED_RESOURCES, RUNTIME, ObjectRef
from windowbox.settings.kindsettings import KindSettings
from workers.core.lifecycle.actuators import Run
from workers.core.owned.targets import TargetClusters
from workers.kinds.controlplane.controlplanepool import ControlPlaneActuator

T = TypeVar("T")

NAMESPACE = "shoot--a--b"
PROVIDER_CONFIG = {
    "apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1",
    "kind": "CloudProfileConfig",
    "machineImages": [],
    "loadBalancer": {"image": "envoy:1"},
}
CLUSTER = {
    "metadata": {"name": NAMESPACE},
    "spec": {
        "shoot": {"status": {"technicalID": NAMESPACE}},
        "cloudProfile": {"spec": {"providerConfig": PROVIDER_CONFIG}},
    },
}


class Doors:
    """The API with some ManagedResources (their metadata by name), as a run reaches it."""

    def __init__(self, bundles: Mapping[str, Mapping[str, Any]], **answers: Any) -> None:
        """`answers` are those of other doors, by name."""
        self._answers = answers
        self.cluster: dict[str, Any] | None = CLUSTER
        self.written: list[str] = []
        """The names of objects."""
        self._found = {
            str(ObjectRef(RUNTIME, MANAGED_RESOURCES.id, NAMESPACE, name)): {
                "metadata": {"name": name, **metadata}
            }
            for name, metadata in bundles.items()
        }

    async def read(self, ref: ObjectRef) -> Object | None:
        return None

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        if request == str(ObjectRef(RUNTIME, CLUSTERS.id, "", NAMESPACE)):
            return {"object": self.cluster}
        if door == "apply":
            self.written.append(request["object"]["metadata"]["name"])
        return self._found.get(request) if door == "look" else self._answers.get(door, [])

    def wrote(self, ref: ObjectRef, version: str) -> None: ...

    async def time(self) -> datetime:
        return datetime.now(UTC)

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        return None


def run(doors: Doors) -> Run:
    object = Object({"metadata": {"name": "b", "namespace": NAMESPACE}, "spec": {"type": "local"}})
    return Run(ObjectRef(RUNTIME, CONTROL_PLANES.id, NAMESPACE, "b"), object, None, doors)


def actuator() -> ControlPlaneActuator:
    nowhere = cast(Any, None)
    return ControlPlaneActuator(TargetClusters(nowhere, nowhere), KindSettings())
