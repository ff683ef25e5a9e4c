"""What is played for a Gardener, by a process of its own, in a real API server."""

from __future__ import annotations

import base64
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import standins
from tests.support.servers import ControlPlane
from tools.gardener.players.parts import PARTS
from windowbox.models.refs import MANAGED_RESOURCES

KINDS = tuple((*one.resource[:4], True, True) for one in PARTS)
OPERATION = "gardener.cloud/operation"
_MANAGED = MANAGED_RESOURCES.path("default")


@pytest.fixture
def players(plane: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """They start before the kinds are there, as in a sandbox without a Garden."""
    command = [sys.executable, "-m", "tools.gardener.players", f"--kubeconfig={plane.kubeconfig}"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            standins.define(plane.api, KINDS)
            yield
        finally:
            process.terminate()
            assert process.wait(10) == 0, (tmp_path / "log").read_text()
            standins.remove(plane.api, KINDS)


class Played:
    """An object of a kind that is played."""

    def __init__(self, plane: ControlPlane, kind: str, spec: dict[str, Any], operation: str = "") -> None:
        self._api, self.name = plane.api, f"played-{uuid.uuid4().hex[:8]}"
        resource = next(part.resource for part in PARTS if part.resource.kind == kind)
        self._kind, self._all = resource, resource.path("default")
        metadata = {"name": self.name, "annotations": {OPERATION: operation} if operation else {}}
        body = {"apiVersion": f"{resource.group}/{resource.version}", "kind": kind, "metadata": metadata}
        self._api.create(self._all, body | {"spec": spec})

    def merge(self, patch: dict[str, Any]) -> None:
        self._api.merge(f"{self._all}/{self.name}", patch)

    def ask(self, operation: str) -> None:
        self.merge({"metadata": {"annotations": {OPERATION: operation}}})

    def wait(self, operation: str) -> dict[str, Any]:
        """Its status, after the operation succeeded for its generation, and with no other one asked for."""
        for found in self.versions():
            last = found.get("status", {}).get("lastOperation", {})
            asked = OPERATION in found["metadata"].get("annotations", {})
            if (last.get("type"), last.get("state"), asked) == (operation, "Succeeded", False):
                assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
                return dict(found["status"])
        raise TimeoutError(f"{self.name}: no {operation} in half a minute")

    def versions(self) -> Iterator[dict[str, Any]]:
        selector = f"fieldSelector=metadata.name={self.name}"
        for event in self._api.events(f"{self._all}?{selector}", seconds=30):
            yield event["object"]

    def delete(self) -> None:
        self._api.request("DELETE", f"{self._all}/{self.name}").close()


@pytest.mark.usefixtures("players")
def test_networks_succeed_with_each_operation_and_no_player_keeps_them(plane: ControlPlane) -> None:
    network = Played(plane, "Network", {"type": "calico"}, "reconcile")
    assert "played" in network.wait("Create")["lastOperation"]["description"]
    managed = plane.api.read(f"{_MANAGED}/extension-networking-plain")
    [secret] = managed["spec"]["secretRefs"]
    data = plane.api.read(f"/api/v1/namespaces/default/secrets/{secret['name']}")["data"]
    assert b"kind: DaemonSet" in base64.b64decode(data["network.yaml"])
    assert [one["name"] for one in managed["metadata"]["ownerReferences"]] == [network.name]

    network.ask("reconcile")
    network.wait("Reconcile")
    network.ask("migrate")
    network.wait("Migrate")
    network.delete()

    other = Played(plane, "Network", {"type": "calico"}, "wait-for-state")
    other.ask("restore")
    other.wait("Restore")
    other.delete()


@pytest.mark.usefixtures("players")
@pytest.mark.parametrize("kind", ["Prometheus", "Alertmanager"])
def test_replicas_of_monitoring_are_available_in_each_generation(plane: ControlPlane, kind: str) -> None:
    played = Played(plane, kind, {"replicas": 2})

    def wait(generation: int, replicas: int) -> list[Any]:
        for found in played.versions():
            status = found.get("status", {})
            conditions = status.get("conditions", [])
            if [one["observedGeneration"] for one in conditions] == [generation, generation]:
                assert status["availableReplicas"] == status["updatedReplicas"] == replicas
                assert [(one["type"], one["status"]) for one in conditions] == [
                    ("Available", "True"), ("Reconciled", "True"),
                ]  # fmt: skip
                return [one["lastTransitionTime"] for one in conditions]
        raise TimeoutError(f"{kind}: generation {generation} was not played in half a minute")

    since = wait(1, 2)
    played.merge({"spec": {"replicas": 1}})
    assert wait(2, 1) == since
    played.delete()


@pytest.mark.usefixtures("players")
def test_networks_of_other_types_are_left_to_others(plane: ControlPlane) -> None:
    foreign = Played(plane, "Network", {"type": "other"}, "reconcile")
    # What follows it in the same watch is played, so that it was seen before.
    Played(plane, "Network", {"type": "cilium"}, "reconcile").wait("Create")

    found = next(foreign.versions())
    assert found["metadata"]["annotations"] == {OPERATION: "reconcile"}
    assert "status" not in found
    foreign.delete()
