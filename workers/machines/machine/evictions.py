"""Drain of a node in short steps: cordon, then evict Pods as PodDisruptionBudgets allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windowbox.errors import Conflict, Missing, PermanentError, TooManyRequests
from windowbox.models.extensions import spelled
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import NODES, PODS, VOLUME_ATTACHMENTS
from workers.core.owned.targets import TargetCluster, in_batches
from workers.machines.machine import drain
from workers.machines.machine.drain import Mode

_ALL_PODS = PODS._replace(selector="")
_MOST = 500
"""Pods of one step; later steps take the others."""
_AT_ONCE = 50
"""Evictions in one step, so that a run stays short."""
_SHOWN = 3


@dataclass(frozen=True)
class Evictions:
    shoot: TargetCluster
    node: Object
    now: datetime
    leaves: bool = True
    """Whether the node is deleted afterwards: its condition Terminating says so."""
    cordons: bool = True
    """Whether to cordon the node."""

    async def step(self, chosen: Mode, *, evicting: bool) -> list[str]:
        """One step. Returns what the drain waits for, as text; empty when it is complete."""
        # Cordon before listing: no Pod is added afterwards.
        if self.cordons and not self.node.spec.get("unschedulable"):
            await self.shoot.strategic_merge(NODES, "", self.node.name, {"spec": {"unschedulable": True}})
        step = drain.step(drain.candidates(await self._pods()), chosen, evicting=evicting)
        if step.done:
            return []
        if self.leaves:
            await self._set_terminating()
        blocked = []
        for pod in step.evict[:_AT_ONCE]:
            if (why := await self._evict(pod)) is not None:
                blocked.append(f"Pod {pod.namespace}/{pod.name} may not be evicted: {why}")
        await in_batches(
            self.shoot.remove(PODS, pod.namespace, pod.name, grace=0, uid=pod.uid) for pod in step.delete
        )
        left = len(step.evict) + len(step.waiting) + len(step.delete)
        waited = f"waiting for {left} Pod{'s' if left > 1 else ''} to leave"
        return [*blocked[:_SHOWN], waited]

    async def detach(self) -> None:
        """Delete the VolumeAttachments of a node after a forced drain: its kubelet may not work."""

        async def act() -> list[str]:
            api = await self.shoot.connection.api()
            return [one.name async for one in api.objects(VOLUME_ATTACHMENTS) if self._is_on_node(one)]

        for name in await self.shoot.recorder.call("attachments", self.node.name, act):
            await self.shoot.remove(VOLUME_ATTACHMENTS, "", name)

    def _is_on_node(self, attachment: Object) -> bool:
        return attachment.spec.get("nodeName") == self.node.name and not attachment.deleting

    async def _pods(self) -> list[Object]:
        """The Pods on the node that a drain considers."""

        async def act() -> list[dict[str, Any]]:
            api = await self.shoot.connection.api()
            fields = f"spec.nodeName={self.node.name}"
            found: list[dict[str, Any]] = []
            async for pod in api.objects(_ALL_PODS, fields=fields):
                # Some nodes have many Pods that have ended; a drain ignores them.
                found += map(_reduced, drain.candidates([pod]))
                if len(found) >= _MOST:
                    break
            return found

        return [Object(raw) for raw in await self.shoot.recorder.call("pods", self.node.name, act)]

    async def _set_terminating(self) -> None:
        """Set the condition Terminating on the node."""
        conditions: Sequence[Any] = self.node.status.get("conditions") or ()
        if any(one.get("type") == "Terminating" for one in conditions if isinstance(one, dict)):
            return
        at = spelled(self.now)
        condition = {
            "type": "Terminating",
            "status": "True",
            "reason": "ScaleDown",
            "message": "Node is being drained, because its Machine is being deleted",
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }
        patch = {"status": {"conditions": [condition]}}
        await self.shoot.strategic_merge(NODES, "", self.node.name, patch, part="status")

    async def _evict(self, pod: Object) -> str | None:
        """Evict the Pod. Returns why the API server refuses, or None."""

        async def act() -> str | None:
            api = await self.shoot.connection.api()
            try:
                await api.evict(pod)
            except TooManyRequests as error:
                return str(error).partition(": ")[2]
            except (Missing, Conflict):
                return None
            except PermanentError as error:
                return str(error).partition(": ")[2] or str(error)  # other Pods may be evicted
            return None

        request = f"{pod.namespace}/{pod.name}"
        answer = await self.shoot.recorder.call("evict", request, act, effect=True)
        return None if answer is None else str(answer)


def _reduced(pod: Object) -> dict[str, Any]:
    """The fields that a drain uses; others may be large, or secret."""
    claims = [one for one in mappings(pod.spec.get("volumes")) if one.get("persistentVolumeClaim")]
    kept = ("name", "namespace", "uid", "deletionTimestamp", "ownerReferences")
    metadata = {name: pod.metadata[name] for name in kept if name in pod.metadata}
    if "kubernetes.io/config.mirror" in pod.annotations:
        metadata["annotations"] = {"kubernetes.io/config.mirror": ""}
    return {
        "metadata": metadata,
        "spec": {"volumes": claims, "priority": pod.spec.get("priority")},
        "status": {"phase": pod.status.get("phase")},
    }
