"""Drain of a node: the Pods that leave it, in which order, and short steps that cordon it and evict them.

Which Pods are evicted or deleted is decided by pure functions; `NodeDrain` acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windowbox.errors import Conflict, Missing, PermanentError, TooManyRequests
from windowbox.models import machinekeys
from windowbox.models.extensions import instant
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import NODES, PODS, VOLUME_ATTACHMENTS
from workers.core.owned.targets import TargetCluster, in_batches
from workers.machines.machine import machinenodes
from workers.machines.machine.machinespecs import Timeouts

_MIRROR = "kubernetes.io/config.mirror"
_EVICTION_PAUSE = 20.0
"""Seconds between two evictions of machine-controller-manager, which `maxEvictRetries` counts."""
_SICK = 300.0
"""Seconds after which an unhealthy node is drained by force."""
_ALL_PODS = PODS._replace(selector="")
_MOST = 500
"""Pods of one step; later steps take the others. Also the VolumeAttachments that one step deletes."""
_AT_ONCE = 50
"""Evictions in one step, so that a run stays short."""
_SHOWN = 3


@dataclass(frozen=True)
class Mode:
    """How a node is drained."""

    forced: bool
    """Pods are deleted at once, and the drain does not wait for them."""
    machine_too: bool
    """The machine is deleted even if Pods are left."""


@dataclass(frozen=True)
class Step:
    """The next step for the Pods of a node."""

    evict: Sequence[Object]
    delete: Sequence[Object]
    waiting: Sequence[Object]
    """Pods that are terminating, or whose turn has not come."""

    @property
    def done(self) -> bool:
        return not (self.evict or self.delete or self.waiting)


def mode(machine: Object, node: Object | None, timeouts: Timeouts, asked: datetime, now: datetime) -> Mode:
    """How the node of a Machine is drained that was deleted at `asked` (B12-R1)."""
    label = str(machine.labels.get(machinekeys.FORCE_DELETION, "")).lower()
    late = now - asked > timedelta(seconds=timeouts.drain)
    forced = label in ("1", "t", "true") or late or (node is not None and is_sick(node, now))
    return Mode(forced, machine_too=forced)


def is_sick(node: Object, now: datetime) -> bool:
    """Whether the node has been unhealthy for so long that its kubelet will not terminate Pods."""
    for one in machinenodes.conditions(node):
        wrong = {"Ready": one["status"] != "True", "ReadonlyFilesystem": one["status"] != "False"}
        since = instant(one.get("lastTransitionTime"))
        if wrong.get(one["type"]) and since and (now - since).total_seconds() > _SICK:
            return True
    return False


def evicted_until(asked: datetime, timeouts: Timeouts) -> datetime:
    """The end of the evictions: Pods that are still there are deleted then (B12-R2)."""
    retries = min(timeouts.evict_retries, int(timeouts.drain / _EVICTION_PAUSE))
    return asked + timedelta(seconds=retries * _EVICTION_PAUSE)


def candidates(pods: Sequence[Object]) -> list[Object]:
    """The Pods that have to leave the node."""

    def leaves(pod: Object) -> bool:
        owners = pod.metadata.get("ownerReferences") or ()
        # Its kubelet is about to remove it. Without that, the garbage collector takes a minute, and whoever
        # deletes the Deployment waits for it.
        removed_soon = pod.deleting and not pod.metadata.get("finalizers")
        return not (
            _MIRROR in pod.annotations
            or any(
                isinstance(one, Mapping) and one.get("controller") and one.get("kind") == "DaemonSet"
                for one in owners
            )
            # Other ended Pods use nothing; the garbage collector deletes them with their node.
            or (pod.status.get("phase") in ("Succeeded", "Failed") and not removed_soon)
        )

    return [pod for pod in pods if leaves(pod)]


def next_step(pods: Sequence[Object], chosen: Mode, *, evicting: bool) -> Step:
    """The next step for these candidates. With `evicting`, PodDisruptionBudgets are honoured."""
    if chosen.forced:
        return Step((), pods, ())
    ending = [pod for pod in pods if pod.deleting]
    standing = [pod for pod in pods if not pod.deleting]
    if not evicting:
        return Step((), standing, ending)

    def claims(pod: Object) -> bool:
        return any(one.get("persistentVolumeClaim") for one in mappings(pod.spec.get("volumes")))

    def importance(pod: Object) -> tuple[int, str]:
        priority: Any = pod.spec.get("priority")
        return priority if isinstance(priority, int) else 0, pod.name

    plain = [pod for pod in standing if not claims(pod)]
    # A volume attaches to one node at a time: Pods with volumes leave one after the other, the least
    # important first.
    stateful = sorted((pod for pod in standing if claims(pod)), key=importance)
    busy = any(claims(pod) for pod in ending)
    first = [] if busy else stateful[:1]
    return Step([*plain, *first], (), [*ending, *stateful[len(first) :]])


@dataclass(frozen=True)
class NodeDrain:
    """The drain of one node, in one run."""

    shoot: TargetCluster
    node: Object
    now: datetime
    leaves: bool = True
    """Whether the node is deleted afterwards: its condition Terminating says so."""
    cordons: bool = True
    """Whether to cordon the node."""

    async def step(self, chosen: Mode, *, evicting: bool) -> list[str]:
        """Take one step. Returns what the drain waits for, as text; empty when it is complete."""
        # Cordon before listing: the scheduler adds no Pod afterwards.
        if self.cordons and not self.node.spec.get("unschedulable"):
            await self.shoot.strategic_merge(NODES, "", self.node.name, {"spec": {"unschedulable": True}})
        step = next_step(candidates(await self._pods()), chosen, evicting=evicting)
        if step.done:
            return []
        # Compared with all conditions of the node: `conditions` shows the first ones only.
        listed = mappings(self.node.status.get("conditions"))
        if self.leaves and not any(one.get("type") == "Terminating" for one in listed):
            message = "Node is being drained, because its Machine is being deleted"
            patch = machinenodes.new_condition("Terminating", "True", "ScaleDown", message, self.now)
            await self.shoot.strategic_merge(NODES, "", self.node.name, patch, part="status")

        async def evict(pod: Object) -> str | None:
            """Evict the Pod. Returns why the API server refuses, or None."""
            api = await self.shoot.connection.api()
            try:
                await api.evict(pod)
            except TooManyRequests as error:
                return str(error).partition(": ")[2]
            except (Missing, Conflict):
                return None  # it is gone, or another Pod has its name
            except PermanentError as error:
                return str(error).partition(": ")[2] or str(error)  # other Pods may be evicted
            return None

        blocked = []
        for pod in step.evict[:_AT_ONCE]:
            request = f"{pod.namespace}/{pod.name}"
            why = await self.shoot.recorder.call("evict", request, evict, pod, effect=True)
            if why is not None:
                blocked.append(f"Pod {request} may not be evicted: {why}")
        await in_batches(
            self.shoot.remove(PODS, pod.namespace, pod.name, grace=0, uid=pod.uid) for pod in step.delete
        )
        left = len(step.evict) + len(step.waiting) + len(step.delete)
        waited = f"waiting for {left} Pod{'s' if left > 1 else ''} to leave"
        return [*blocked[:_SHOWN], waited]

    async def detach(self) -> None:
        """Delete the node's VolumeAttachments after a forced drain: its kubelet may not detach volumes."""

        async def list_attachments() -> list[str]:
            api, found = await self.shoot.connection.api(), list[str]()
            async for one in api.objects(VOLUME_ATTACHMENTS):
                if one.spec.get("nodeName") == self.node.name and not one.deleting:
                    found.append(one.name)
                if len(found) >= _MOST:
                    break
            return found

        names = await self.shoot.recorder.call("attachments", self.node.name, list_attachments)
        await in_batches(self.shoot.remove(VOLUME_ATTACHMENTS, "", name) for name in names)

    async def _pods(self) -> list[Object]:
        """The candidates on the node, with the fields that a drain uses; others may be large, or secret."""

        async def list_pods() -> list[dict[str, Any]]:
            api = await self.shoot.connection.api()
            found: list[dict[str, Any]] = []
            async for pod in api.objects(_ALL_PODS, fields=f"spec.nodeName={self.node.name}"):
                # Some nodes have many ended Pods, which must not use up the limit.
                for one in candidates([pod]):
                    volumes = mappings(one.spec.get("volumes"))
                    kept = ("name", "namespace", "uid", "deletionTimestamp", "ownerReferences")
                    claims = [volume for volume in volumes if volume.get("persistentVolumeClaim")]
                    found.append(
                        {
                            "metadata": {name: one.metadata[name] for name in kept if name in one.metadata},
                            "spec": {"volumes": claims, "priority": one.spec.get("priority")},
                            "status": {"phase": one.status.get("phase")},
                        }
                    )
                if len(found) >= _MOST:
                    break
            return found

        return [Object(raw) for raw in await self.shoot.recorder.call("pods", self.node.name, list_pods)]
