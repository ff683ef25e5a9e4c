"""The bus and the clusters, as recorded calls of runs of Services."""

from __future__ import annotations

from typing import Any

from bus.clusters.clusters import Clusters
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.core.recorder import Recorder
from workers.loadbalancer.edgestate import EdgeState, States
from workers.loadbalancer.spec.selection import FINALIZER


class ServiceWorld:
    """The bus and the clusters, as runs of Services see them."""

    def __init__(self, clusters: Clusters, states: States) -> None:
        self._clusters = clusters
        self._states = states

    async def edge(self, ref: ObjectRef, recorder: Recorder) -> EdgeState | None:
        """The state that the edge reports of this Service; None if the edge does not serve it."""

        async def act() -> Any:
            state = await self._states.get(ref)
            return state.model_dump(mode="json") if state else None

        answer = await recorder.call("edge", None, act)
        return EdgeState.model_validate(answer) if answer else None

    async def cluster_left(self, ref: ObjectRef, recorder: Recorder) -> bool:
        """Whether the Service's cluster has left, whatever the bus may still hold of it."""
        if ref.cluster == RUNTIME:
            return False

        async def act() -> bool:
            return self._clusters.has_left(ref.cluster)

        return bool(await recorder.call("left", ref.cluster, act))

    async def gone(self, ref: ObjectRef, recorder: Recorder) -> bool:
        """Whether the Service is really gone: the bus may only have forgotten it."""

        async def act() -> bool:
            if self._clusters.has_left(ref.cluster):
                return True
            if self._clusters.is_asleep(ref.cluster):
                return False
            kube = await self._clusters.get(ref.cluster)
            return await kube.find(SERVICES, ref.namespace, ref.name) is None

        return bool(await recorder.call("gone", str(ref), act))

    async def add_finalizer(self, ref: ObjectRef, recorder: Recorder) -> str:
        """Add our finalizer. Returns the resource version of the Service that has it."""
        return await self._patch(ref, {"metadata": {"finalizers": [FINALIZER]}}, recorder)

    async def remove_finalizer(self, ref: ObjectRef, recorder: Recorder) -> None:
        """Remove our finalizer; those of others stay."""
        await self._patch(ref, {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}, recorder)

    async def _patch(self, ref: ObjectRef, patch: dict[str, Any], recorder: Recorder) -> str:
        # Like Kubernetes' service controller, we have no right to patch Services, only their status.
        async def act() -> str:
            kube = await self._clusters.get(ref.cluster)
            patched = await kube.strategic_merge(SERVICES, ref.namespace, ref.name, patch, part="status")
            return patched.resource_version

        version: str = await recorder.call("patch", patch, act, effect=True)
        return version
