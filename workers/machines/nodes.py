"""Writes to the nodes of Machines, for MachineSets and MachineDeployments."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bus.clusters.clusters import Clusters
from windowbox.errors import PermanentError, TransientError, Unreachable
from windowbox.models import machinekeys
from windowbox.models.objects import Object
from windowbox.models.refs import NODES, RUNTIME, ObjectRef, is_provider_cluster
from workers.core.recorder import Recorder
from workers.machines.facts import node_taints
from workers.machines.fence import Fence

logger = logging.getLogger(__name__)

_MARKS = (machinekeys.CANDIDATE, machinekeys.SELECTED)
SELF_HOSTED = "kube-system"
"""The control plane of a Shoot that hosts itself: its nodes are in the same cluster."""


@dataclass(frozen=True)
class Taint:
    key: str
    value: str | None
    """None: the taint has no value."""
    effect: str

    def on(self, node: Object) -> bool:
        return len(self.removed(node)) < len(node_taints(node))

    def added(self, node: Object) -> list[Any]:
        value = {} if self.value is None else {"value": self.value}
        return [*self.removed(node), {"key": self.key, **value, "effect": self.effect}]

    def removed(self, node: Object) -> list[Any]:
        ours = (self.key, self.effect)
        return [one for one in node_taints(node) if (one.get("key"), one.get("effect")) != ours]


def names_shoot(home: ObjectRef) -> bool:
    """Whether the namespace of an object may be the name of a Shoot's cluster.

    Only in our own cluster: elsewhere, tenants may choose any name.
    """
    return home.cluster == RUNTIME and not is_provider_cluster(home.namespace)


@dataclass
class Nodes:
    """The nodes of one control plane, for one run. A Shoot that has not joined has none."""

    clusters: Clusters
    home: ObjectRef
    recorder: Recorder
    fence: Fence
    away: Unreachable | None = field(default=None, init=False)
    """Why the API did not answer. The run does not ask again: each attempt may take its whole timeout."""

    @property
    def cluster(self) -> str:
        own = self.home.namespace == SELF_HOSTED or not names_shoot(self.home)
        return self.home.cluster if own else self.home.namespace

    async def get(self, name: str) -> Object | None:
        """The node on the bus."""
        return await self.recorder.read(ObjectRef(self.cluster, NODES.id, "", name)) if name else None

    async def live(self, names: Collection[str]) -> dict[str, Object]:
        """The nodes of these names from the API: their versions, and their labels of in-place updates."""
        if self.away:
            raise self.away

        async def list_nodes() -> list[dict[str, Any]]:
            kube = await self.clusters.get(self.cluster)
            nodes = kube.objects(NODES, metadata_only=True)
            return [
                {
                    "metadata": {
                        "name": node.name,
                        "resourceVersion": node.resource_version,
                        "labels": {name: value for name, value in node.labels.items() if name in _MARKS},
                    }
                }
                async for node in nodes
                if node.name in names
            ]

        return {one.name: one for one in map(Object, await self.recorder.call("nodes", None, list_nodes))}

    async def annotate(self, names: Sequence[str], annotations: Mapping[str, str | None]) -> None:
        """Set annotations, and remove those that are None, where the node differs."""
        for name in names:
            node = await self.get(name)
            if node is None:
                continue
            changed = {k: v for k, v in annotations.items() if node.annotations.get(k) != v}
            if changed:
                await self.patch(node, {"metadata": {"annotations": changed}})

    async def taint(self, names: Sequence[str], taint: Taint, *, wanted: bool = True) -> None:
        """Add a taint, or remove it."""
        for name in names:
            node = await self.get(name)
            if node and taint.on(node) != wanted:
                taints = taint.added(node) if wanted else taint.removed(node)
                await self.patch(node, {"spec": {"taints": taints or None}})

    async def patch(self, node: Object, patch: dict[str, Any]) -> TransientError | PermanentError | None:
        """Merge into the version that was read. Errors are returned and logged: the machines matter more."""
        if self.away:
            return self.away
        await self.fence.require()
        metadata = {**patch.get("metadata", {}), "resourceVersion": node.resource_version}
        whole = {**patch, "metadata": metadata}

        async def merge() -> None:
            kube = await self.clusters.get(self.cluster)
            await kube.merge(NODES, "", node.name, whole)

        try:
            await self.recorder.call("node", {"name": node.name, **whole}, merge, effect=True)
        except (TransientError, PermanentError) as error:
            logger.warning("node %s of %s: %s", node.name, self.home.namespace, error)
            self.away = error if isinstance(error, Unreachable) else None
            return error
        return None
