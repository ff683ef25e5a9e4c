"""What becomes of the configuration of a cloud-controller-manager when its ControlPlane is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import pytest

from windowbox.errors import Waiting
from windowbox.models.kindsettings import KindSettings
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES, MANAGED_RESOURCES, RUNTIME, ObjectRef
from workers.controlplane import bundles
from workers.controlplane.actuator import ControlPlaneActuator
from workers.lifecycle.kinds import Run
from workers.owned.targets import TargetClusters

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
    """The API with some ManagedResources, as a run reaches it."""

    def __init__(self, bundles: Mapping[str, Mapping[str, Any]]) -> None:
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
        self, door: str, request: Any, act: Callable[[], Awaitable[Any]], *, effect: bool = False
    ) -> Any:
        if request == str(ObjectRef(RUNTIME, CLUSTERS.id, "", NAMESPACE)):
            return {"object": CLUSTER}
        if door == "apply":
            self.written.append(request["object"]["metadata"]["name"])
        return self._found.get(request) if door == "look" else []

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        return None


LIVE: dict[str, Any] = {}
GOING = {"deletionTimestamp": "2026-09-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("seed", "configuration", "forced", "renews"),
    [
        pytest.param(LIVE, LIVE, False, True, id="at-work"),
        pytest.param(GOING, LIVE, False, False, id="going"),
        pytest.param(LIVE, GOING, False, False, id="configuration-goes"),
        pytest.param(None, LIVE, False, False, id="gone"),
        pytest.param(LIVE, LIVE, True, False, id="forced"),
    ],
)
async def test_a_deletion_renews_the_configuration_only_for_who_stays(
    seed: Any, configuration: Any, forced: bool, renews: bool
) -> None:
    found = {bundles.SEED: seed, bundles.CONFIGURATION: configuration}
    doors = Doors({name: metadata for name, metadata in found.items() if metadata is not None})
    nowhere = cast(Any, None)
    actuator = ControlPlaneActuator(TargetClusters(nowhere, nowhere), KindSettings())
    object = Object({"metadata": {"name": "b", "namespace": NAMESPACE}, "spec": {"type": "local"}})
    run = Run(ObjectRef(RUNTIME, CONTROL_PLANES.id, NAMESPACE, "b"), object, None, doors)
    with contextlib.suppress(Waiting):
        await (actuator.force_delete(run) if forced else actuator.delete(run))
    assert (bundles.CONFIGURATION in doors.written) is renews
