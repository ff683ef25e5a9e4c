"""Machines, their sets and nodes in memory, for tests of single steps of a MachineDeployment's runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from windowbox.errors import Conflict
from windowbox.models.objects import Object, merge
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_LEASES, NODES, RUNTIME, ObjectRef, Resource
from workers.core.reports import Reports
from workers.machines.deployment.deploymentrun import DeploymentRun
from workers.machines.deployment.deploymentstate import State
from workers.machines.fence import Fence
from workers.machines.machineobjects import MachineObjects
from workers.machines.nodes import Nodes
from workers.machines.reporting import StatusReport

_HOME = ObjectRef(RUNTIME, MACHINE_DEPLOYMENTS.id, "shoot--l--d", "pool")
_LEASE = ObjectRef(RUNTIME, MACHINE_LEASES.id, "shoot--l--d", "machine-controller-manager")
LEASE = f"{_LEASE.kind} {_LEASE.name}"
"""The key of the Lease in `stored`."""


def lease(uid: str = "u", holder: str = "windowbox") -> Object:
    """The Lease of the namespace."""
    return Object({"metadata": {"name": _LEASE.name, "uid": uid}, "spec": {"holderIdentity": holder}})


def _held() -> dict[str, Object]:
    return {LEASE: lease()}


@dataclass
class MachineApi:
    """The clusters and the recorder of a run: both see the same objects, or fail with the given errors."""

    errors: dict[str, Exception] = field(default_factory=dict)
    """The errors of requests by kind; with `List`, of a list of that kind."""
    stored: dict[str, Object] = field(default_factory=_held)
    asked: list[str] = field(default_factory=list)

    def add(self, resource: Resource, found: Object) -> Object:
        metadata = {**found.metadata, "resourceVersion": "1"}
        self.stored[f"{resource.id} {found.name}"] = added = Object({**found.raw, "metadata": metadata})
        return added

    def run(self, state: State) -> DeploymentRun:
        clusters = cast(Any, self)
        fence = Fence(clusters, _LEASE, self, lease().uid)
        objects, nodes = MachineObjects(clusters, _HOME, self, fence), Nodes(clusters, _HOME, self, fence)
        report = StatusReport(state.deployment, Reports(clusters, _HOME, self))
        return DeploymentRun(state, objects, nodes, report, self, datetime(2026, 1, 1, tzinfo=UTC))

    async def read(self, ref: ObjectRef) -> Object | None:
        return self.stored.get(f"{ref.kind} {ref.name}")

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        return await act(*args)

    def wrote(self, ref: ObjectRef, version: str) -> None: ...

    async def time(self) -> datetime:
        return datetime.now(UTC)

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], Any]) -> Any:
        return None

    async def get(self, cluster: str) -> MachineApi:
        return self

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        self._ask(resource, name)
        return self.stored.get(f"{resource.id} {name}")

    async def merge(self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        self._ask(resource, name)
        key, version = f"{resource.id} {name}", patch["metadata"].get("resourceVersion")
        found = self.stored[key]
        if version not in (None, found.resource_version):
            raise Conflict(f"{name} has changed")
        changed = merge(found.raw, patch)
        changed["metadata"]["resourceVersion"] = str(int(found.resource_version) + 1)
        self.stored[key] = Object(changed)
        return self.stored[key]

    async def objects(self, resource: Resource, **_: Any) -> AsyncIterator[Object]:
        if error := self.errors.get(f"{resource.kind}List"):
            raise error
        for key, one in list(self.stored.items()):
            if key.startswith(f"{resource.id} "):
                yield one

    async def remove(self, resource: Resource, namespace: str, name: str, *, uid: str) -> bool:
        self._ask(resource, name)
        return self.stored.pop(f"{resource.id} {name}", None) is not None

    def node(self, name: str) -> Object:
        return self.stored[f"{NODES.id} {name}"]

    def _ask(self, resource: Resource, name: str) -> None:
        self.asked.append(f"{resource.kind} {name}")
        if error := self.errors.get(resource.kind):
            raise error
