"""The node agent, as far as in-place updates need it: it labels ready nodes with a result."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import NODES


@dataclass
class NodeAgents:
    """The agents of all nodes whose names begin with the prefix."""

    kube: Kube
    prefix: str = "machine-"
    fails: set[str] = field(default_factory=set)
    """Nodes whose update fails."""
    reasons: dict[str, list[str]] = field(default_factory=dict)
    """The reasons of the condition InPlaceUpdate, in order, by node."""
    selected: list[int] = field(default_factory=list)
    """How many nodes were selected at once, each time a node changed."""
    schedulable: list[str] = field(default_factory=list)
    """Nodes that were to be updated while they were still schedulable."""
    _nodes: dict[str, Object] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            with contextlib.suppress(WindowboxError):
                page = await self.kube.page(NODES)
                for raw in page.items:
                    await self._take(Object(raw))
                async for events in self.kube.watch(NODES, page.resource_version):
                    for event in events:
                        if event.type in ("ADDED", "MODIFIED"):
                            await self._take(Object(event.object))

    async def _take(self, node: Object) -> None:
        if not node.name.startswith(self.prefix):
            return
        self._nodes[node.name] = node
        self.selected.append(sum(keys.SELECTED in one.labels for one in self._nodes.values()))
        reason, seen = _reason(node), self.reasons.setdefault(node.name, [])
        if reason and (not seen or seen[-1] != reason):
            seen.append(reason)
        if reason == "ReadyForUpdate" and keys.UPDATE_RESULT not in node.labels:
            if not node.spec.get("unschedulable"):
                self.schedulable.append(node.name)
            await self._finish(node)

    async def _finish(self, node: Object) -> None:
        result = keys.FAILED if node.name in self.fails else keys.SUCCESSFUL
        metadata: dict[str, Any] = {"labels": {keys.UPDATE_RESULT: result}}
        if result == keys.FAILED:
            metadata["annotations"] = {keys.UPDATE_FAILED_REASON: "no space left"}
        await self.kube.merge(NODES, "", node.name, {"metadata": metadata})


def _reason(node: Object) -> str:
    said = mappings(node.status.get("conditions"))
    return next((str(one.get("reason")) for one in said if one.get("type") == "InPlaceUpdate"), "")
