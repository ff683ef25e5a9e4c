"""Writes of one run to Machines, MachineSets and MachineDeployments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bus.clusters.clusters import Clusters
from windowbox.errors import Missing
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, MACHINES, WORKERS, ObjectRef, Resource
from workers.core.recorder import Recorder
from workers.machines import facts
from workers.machines.facts import MachineFacts
from workers.machines.fence import Fence
from workers.machines.moving import is_leaving, shoot_is_leaving

Json = dict[str, Any]


@dataclass(frozen=True)
class MachineObjects:
    """The API of the cluster and namespace that a run's object is in. Each write checks the Lease first."""

    clusters: Clusters
    ref: ObjectRef
    recorder: Recorder
    fence: Fence

    async def machines(self) -> list[MachineFacts]:
        """All Machines of the namespace, from the API."""

        async def list_machines() -> list[Json]:
            return [facts.machine(one).record() for one in await self._list(MACHINES)]

        return [
            MachineFacts.from_record(one) for one in await self.recorder.call("machines", None, list_machines)
        ]

    async def listed(self, resource: Resource) -> list[Object]:
        """All objects of a kind in the namespace, from the API."""

        async def list_objects() -> list[Json]:
            return [_bare(one) for one in await self._list(resource)]

        return [Object(one) for one in await self.recorder.call("list", resource.id, list_objects)]

    async def are_leaving(self) -> bool:
        """Whether the namespace's Worker, or its Shoot, is being migrated to another seed."""

        async def look_for_migration() -> bool:
            if any(map(is_leaving, await self._list(WORKERS))):
                return True
            kube = await self.clusters.get(self.ref.cluster)
            found = await kube.find(CLUSTERS, "", self.ref.namespace)
            return found is not None and shoot_is_leaving(found)

        return bool(await self.recorder.call("leaving", None, look_for_migration))

    async def get(self, resource: Resource, name: str) -> Object | None:
        async def find() -> Json | None:
            kube = await self.clusters.get(self.ref.cluster)
            found = await kube.find(resource, self.ref.namespace, name)
            return _bare(found) if found else None

        raw = await self.recorder.call("look", f"{resource.id} {name}", find)
        return Object(raw) if raw else None

    async def create(self, resource: Resource, body: Json) -> Object:
        """Create an object. Raises Conflict if the name is taken."""
        await self.fence.require()

        async def create() -> Json:
            kube = await self.clusters.get(self.ref.cluster)
            return _bare(await kube.create(resource, self.ref.namespace, body))

        return Object(await self.recorder.call("create", body, create, effect=True))

    async def patch(self, resource: Resource, name: str, patch: Json, version: str = "") -> Object | None:
        """Merge into an object, with `version` only if it still has that. None if it is gone."""
        await self.fence.require()
        if version:
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}

        async def merge() -> Json | None:
            kube = await self.clusters.get(self.ref.cluster)
            try:
                return _bare(await kube.merge(resource, self.ref.namespace, name, patch))
            except Missing:
                return None

        request = {"object": f"{resource.id} {name}", **patch}
        raw = await self.recorder.call("patch", request, merge, effect=True)
        return Object(raw) if raw else None

    async def delete(self, resource: Resource, name: str, uid: str) -> None:
        await self.fence.require()

        async def remove() -> bool:
            kube = await self.clusters.get(self.ref.cluster)
            return await kube.remove(resource, self.ref.namespace, name, uid=uid)

        await self.recorder.call(
            "delete", {"object": f"{resource.id} {name}", "uid": uid}, remove, effect=True
        )

    async def _list(self, resource: Resource) -> list[Object]:
        kube = await self.clusters.get(self.ref.cluster)
        return [one async for one in kube.objects(resource, namespace=self.ref.namespace)]


def with_finalizer(found: Mapping[str, Any], finalizer: str) -> Json:
    """The metadata that adds a finalizer; empty if the object has it."""
    present = list(found.get("finalizers") or ())
    return {} if finalizer in present else {"finalizers": [*present, finalizer]}


def without_finalizer(found: Object, finalizer: str) -> Json:
    """The metadata that removes a finalizer from this very object."""
    return {"uid": found.uid, "finalizers": [one for one in found.finalizers if one != finalizer]}


def _bare(found: Object) -> Json:
    metadata = {name: value for name, value in found.metadata.items() if name != "managedFields"}
    return {**found.raw, "metadata": metadata}
