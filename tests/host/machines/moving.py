"""The move of a Shoot's control plane from one seed to another, as gardenlet does it.

Both seeds are this sandbox: the second one is the same namespace, without machine objects.
"""

from __future__ import annotations

import contextlib
from typing import Any

from sandbox.shoots import shootmanifests, waiting
from tests.host.machines.conftest import ShootWorld
from tests.support.workerexample import saved_state
from windowbox.errors import Refused

_MACHINES = "machinedeployments", "machinesets", "machines", "machineclasses"
_KEPT = ("name", "namespace", "labels", "annotations")


class Move:
    def __init__(self, world: ShootWorld) -> None:
        self._api, self._home = world.sandbox.api, world.shoot.technical_id

    def leave(self) -> dict[str, Any]:
        """Migrate from the first seed. Returns the Worker, and the state of its machines."""
        self._operation("Migrate")
        worker = self._api.read(self._worker)
        self._ask("migrate")
        self._until("Migrate")
        state = self._state()
        self._api.request("DELETE", self._worker).close()
        for plural in _MACHINES:
            for name in [one["metadata"]["name"] for one in self._listed(plural)]:
                with contextlib.suppress(Refused):
                    self._api.merge(self._path(plural, name), {"metadata": {"finalizers": None}})
                    self._api.request("DELETE", self._path(plural, name)).close()
        for plural in _MACHINES:
            for one in self._listed(plural):
                name = one["metadata"]["name"]
                waiting.until_gone(self._api, self._path(plural), name, f"{name} is not gone", patience=60)
        return {"spec": worker["spec"], "state": state}

    def arrive(self, left: dict[str, Any]) -> None:
        """Restore on the other seed."""
        self._operation("Restore")
        waits = {"gardener.cloud/operation": "wait-for-state"}
        metadata = {"name": shootmanifests.WORKER, "namespace": self._home, "annotations": waits}
        head = {"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Worker"}
        workers = self._worker.rpartition("/")[0]
        self._api.create(workers, {**head, "metadata": metadata, "spec": left["spec"]})
        self._api.merge(f"{self._worker}/status", {"status": {"state": left["state"]}})
        self._ask("restore")
        self._until("Restore")

    @property
    def _worker(self) -> str:
        home = f"/apis/extensions.gardener.cloud/v1alpha1/namespaces/{self._home}"
        return f"{home}/workers/{shootmanifests.WORKER}"

    def _path(self, plural: str, name: str = "") -> str:
        path = f"/apis/machine.sapcloud.io/v1alpha1/namespaces/{self._home}/{plural}"
        return f"{path}/{name}" if name else path

    def _listed(self, plural: str) -> list[dict[str, Any]]:
        return list(self._api.read(self._path(plural))["items"])

    def _operation(self, type_: str) -> None:
        """Write gardenlet's operation to the Cluster."""
        path = f"/apis/extensions.gardener.cloud/v1alpha1/clusters/{self._home}"
        last = {"lastOperation": {"type": type_, "state": "Processing"}}
        self._api.merge(path, {"spec": {"shoot": {"status": last}}})

    def _ask(self, operation: str) -> None:
        self._api.merge(self._worker, {"metadata": {"annotations": {"gardener.cloud/operation": operation}}})

    def _until(self, type_: str) -> None:
        def done(worker: dict[str, Any]) -> bool:
            last = worker.get("status", {}).get("lastOperation") or {}
            return (last.get("type"), last.get("state")) == (type_, "Succeeded")

        workers, name = self._worker.rsplit("/", 1)
        waiting.until(self._api, workers, name, done, f"{type_} has not succeeded", patience=120)

    def _state(self) -> dict[str, str]:
        sets, machines = self._listed("machinesets"), self._listed("machines")
        content = {
            one["metadata"]["name"]: {
                "replicas": one["spec"]["replicas"],
                "machineSets": [_saved(each) for each in sets],
                "machines": [_saved(each) for each in machines],
            }
            for one in self._listed("machinedeployments")
        }
        return saved_state(content)


def _saved(found: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in found["metadata"].items() if name in _KEPT}
    return {"metadata": metadata, "spec": found["spec"]}
