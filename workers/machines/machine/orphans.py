"""Machine Pods and nodes without a Machine are deleted: as soon as one is seen, and after asking the API.

Not while the Shoot moves between seeds: then its Machines are taken away, and put up elsewhere, while its
nodes go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bus.messages import Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.models import machinekeys
from windowbox.models.extensions import OPERATION, instant
from windowbox.models.objects import Object
from windowbox.models.refs import (
    CLUSTERS,
    MACHINE_CLASSES,
    MACHINES,
    NAMESPACES,
    NODES,
    PODS,
    RUNTIME,
    WORKERS,
    ObjectRef,
)
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock
from workers.core.lifecycle.kinds import Run
from workers.core.owned.ownerindex import INFRASTRUCTURE
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.recorder import Recorder
from workers.machines.machine import drain, names, wanted
from workers.machines.machine.evictions import Evictions
from workers.machines.machine.views import MachineViews, require_listed
from workers.machines.moving import leaves, moves, shoot_is_leaving
from workers.machines.nodes import SELF_HOSTED

_RETRY = 60.0


@dataclass(frozen=True)
class Orphans:
    targets: TargetClusters
    views: MachineViews
    settings: MachineSettings

    async def run(self, ref: ObjectRef, recorder: Recorder) -> Outcome:
        """Delete the Pod `ref`, if it has no Machine."""
        pod = await recorder.read(ref)
        machine = machine_of(pod) if pod is not None and not pod.deleting else None
        if pod is None or machine is None:
            return Ignored("not ours") if pod is not None else Ignored("gone")
        own = self.targets.own_cluster(Run(machine, Object({}), None, recorder))
        if await own.cached(MACHINES, machine.namespace, machine.name):
            return Ignored()
        if await own.cached(NAMESPACES, "", machine.namespace) is None:
            return Ignored("its control plane is in another cluster, or gone")
        await require_listed(self.views, machine.cluster, recorder)
        owners = await _owners(own, machine.namespace)
        if moving := await _moving_shoot(own, machine.namespace, owners):
            return moving
        if why := await _reason_to_keep(own, machine, owners):
            return Unfinished(why)
        for secret in sorted({tuple(one["secret"]) for one in owners if one["secret"]}):
            run = Run(machine, Object({}), None, recorder)
            async with self.targets.provider(run, *secret) as target:
                if target.cluster == ref.cluster:
                    await target.remove(PODS, ref.namespace, ref.name, grace=0)
                    note = f"there is no Machine {machine.namespace}/{machine.name}"
                    return Done(note)
        return Unfinished(f"no Secret in {machine.namespace} leads to {ref.cluster}")

    async def of_node(self, ref: ObjectRef, recorder: Recorder) -> Outcome:
        """Remove a node whose machine is gone, and release one that never had a machine.

        A node that is being deleted goes; one without a machine gets an annotation, once a machine would have
        had to join.
        """
        node = await recorder.read(ref)
        if node is None or (node.deleting and machinekeys.NODE_FINALIZER not in node.finalizers):
            return Ignored()
        now = await clock.now(recorder)
        joins = self.settings.creation_timeout - _age(node, now)
        # Machines of our own cluster's nodes are most often another cluster's business.
        had_machine = ref.cluster != RUNTIME and _had_machine(node)
        if not (node.deleting or had_machine) and joins > 0:
            return _just_joined(joins)
        name = str(node.labels.get(machinekeys.NODE_MACHINE) or node.name)
        machine = ObjectRef(RUNTIME, MACHINES.id, home_of(ref.cluster), name)
        own = self.targets.own_cluster(Run(machine, Object({}), None, recorder))
        await require_listed(self.views, machine.cluster, recorder)
        if await own.live(MACHINES, machine.namespace, machine.name) is not None:
            return Ignored()
        if await self._is_claimed(node, machine.namespace, recorder):
            return Ignored()
        if had_machine and not node.deleting:
            if outcome := await self._removed(ref, node, machine, own, now):
                return outcome
            if joins > 0:
                return _just_joined(joins)
        head: dict[str, Any] = {"$deleteFromPrimitiveList/finalizers": [machinekeys.NODE_FINALIZER]}
        patch = {"metadata": {**head, "uid": node.uid}}
        if not node.deleting:
            patch["metadata"]["annotations"] = {machinekeys.NOT_MANAGED: "1"}
        await self.targets.member(ref.cluster, recorder).strategic_merge(NODES, "", ref.name, patch)
        return Done("released")

    async def _removed(
        self, ref: ObjectRef, node: Object, machine: ObjectRef, own: TargetCluster, now: datetime
    ) -> Outcome | None:
        """Delete a node of an ended machine, and its Pods. None if it may belong to somebody else."""
        owners = await _owners(own, machine.namespace)
        if moving := await _moving_shoot(own, machine.namespace, owners):
            return moving
        if await _reason_to_keep(own, machine, owners):
            return None
        if await pods_of(self.views, machine, own.recorder):
            # When it ends, the node stops being Ready: the event brings us back.
            return Unfinished(f"Pod {names.pod(machine.name)} has not ended")
        shoot = self.targets.member(ref.cluster, own.recorder)
        evictions = Evictions(shoot, node, now)
        await evictions.step(drain.Mode(forced=True, machine_too=True), evicting=False)
        await evictions.detach()
        head = {"uid": node.uid, "$deleteFromPrimitiveList/finalizers": [machinekeys.NODE_FINALIZER]}
        await shoot.strategic_merge(NODES, "", node.name, {"metadata": head})
        await shoot.remove(NODES, "", node.name, uid=node.uid)
        return Done(f"there is no Machine {machine.namespace}/{machine.name}")

    async def _is_claimed(self, node: Object, home: str, recorder: Recorder) -> bool:
        async def act() -> bool:
            return any(one.namespace == home for one in self.views.of_node(node.name))

        return bool(await recorder.call("claimants", node.name, act))


def _age(node: Object, now: datetime) -> float:
    """Seconds since the node joined."""
    return (now - (instant(node.metadata.get("creationTimestamp")) or now)).total_seconds()


def _had_machine(node: Object) -> bool:
    """Whether the node had a Machine: both are written when a machine joins."""
    return machinekeys.NODE_FINALIZER in node.finalizers and machinekeys.NODE_MACHINE in node.labels


def _just_joined(joins: float) -> Outcome:
    """Its machine may still claim it, for so many seconds."""
    return Unfinished("it has just come", RequeueAfter(Wish(reason=Reason.DUE), joins + 1))


def home_of(cluster: str) -> str:
    """The namespace of the control plane whose Machines are nodes of a cluster."""
    return SELF_HOSTED if cluster == RUNTIME else cluster


async def pods_of(
    views: MachineViews, machine: ObjectRef, recorder: Recorder
) -> list[tuple[ObjectRef, Object]]:
    """The Pods on the bus that were made for a Machine. Pods of other Machines may have its name."""

    async def act() -> list[tuple[str, ...]]:
        return [tuple(pod) for pod in views.pods_named(names.pod(machine.name))]

    refs = [ObjectRef(*found) for found in await recorder.call("pods", None, act)]
    seen = [(ref, await recorder.read(ref)) for ref in refs]
    return [(ref, pod) for ref, pod in seen if pod is not None and machine_of(pod) == machine]


def machine_of(pod: Object) -> ObjectRef | None:
    """The Machine that a Pod was made for; None if that cannot be told, or it is no machine's."""
    if pod.labels.get("machine-provider") != "local" or pod.labels.get("app") != "machine":
        return None
    namespace, _, name = str(pod.annotations.get(wanted.OWNER, "")).partition("/")
    if not name:
        # Gardener's own driver says no more than the name, and the Shoot by the Pod's namespace.
        if not pod.namespace.startswith(INFRASTRUCTURE):
            return None
        namespace = pod.namespace.removeprefix(INFRASTRUCTURE)
        name = str(pod.labels.get("machine", ""))
    if not name or names.pod(name) != pod.name:
        return None
    return ObjectRef(RUNTIME, MACHINES.id, namespace, name)


def may_be_of(pod: Object, machine: ObjectRef) -> bool:
    """Whether a Pod with the name of a Machine's is the Machine's: it says so, or not whose it is."""
    owner = pod.annotations.get(wanted.OWNER)
    return owner is None or owner == f"{machine.namespace}/{machine.name}"


async def _reason_to_keep(own: TargetCluster, machine: ObjectRef, owners: Sequence[Mapping[str, Any]]) -> str:
    """Why the Pod stays for now; nothing if it is an orphan."""
    home = machine.namespace
    if await own.live(MACHINES, home, machine.name) is not None:
        return f"Machine {home}/{machine.name} has just been made"
    namespace = await own.live(NAMESPACES, "", home)
    if namespace is None or namespace.deleting:
        return f"namespace {home} is gone: whoever removed it removes its machines"
    if not owners:
        return f"nothing in namespace {home} says that its machines are ours"
    return ""


async def _owners(own: TargetCluster, namespace: str) -> list[dict[str, Any]]:
    """The Workers and MachineClasses of a control plane: because of them machines are ours."""
    return [*await _listed(own, WORKERS, namespace), *await _listed(own, MACHINE_CLASSES, namespace)]


async def _moving_shoot(
    own: TargetCluster, namespace: str, owners: Sequence[Mapping[str, Any]]
) -> Outcome | None:
    """What to do while a Shoot moves between seeds: nothing for now. None if it does not move."""
    if not any(_moving(one) for one in owners) and not await _shoot_is_leaving(own, namespace):
        return None
    again = RequeueAfter(Wish(reason=Reason.DUE), _RETRY)
    return Unfinished("the Shoot is being moved to another seed, or from one", again)


async def are_leaving(own: TargetCluster, namespace: str) -> bool:
    """Whether the machines of a namespace are being handed over to another seed."""
    owners = await _listed(own, WORKERS, namespace)
    if any(leaves(one["operation"], one["lastOperation"]) for one in owners):
        return True
    return await _shoot_is_leaving(own, namespace)


async def _shoot_is_leaving(own: TargetCluster, namespace: str) -> bool:
    async def act() -> bool:
        api = await own.connection.api()
        found = await api.find(CLUSTERS, "", namespace)
        return found is not None and shoot_is_leaving(found)

    return bool(await own.recorder.call("leaving", namespace, act))


def _moving(owner: Mapping[str, Any]) -> bool:
    return moves(owner["operation"], owner["lastOperation"])


async def _listed(own: TargetCluster, resource: Any, namespace: str) -> list[dict[str, Any]]:
    """What the objects of a kind in the namespace are at, and which Secret leads to their machines."""

    async def act() -> list[dict[str, Any]]:
        api = await own.connection.api()
        return [
            {
                "name": one.name,
                "operation": one.annotations.get(OPERATION),
                "lastOperation": {name: one.last_operation.get(name) for name in ("type", "state")},
                "secret": _secret(one),
            }
            async for one in api.objects(resource._replace(within=namespace))
        ]

    return list(await own.recorder.call("list", {"kind": resource.id, "namespace": namespace}, act))


def _secret(owner: Object) -> tuple[str, str] | None:
    """The Secret that a MachineClass, or a Worker, names."""
    ref = owner.raw.get("credentialsSecretRef") or owner.spec.get("secretRef")
    if not isinstance(ref, Mapping) or not ref.get("name"):
        return None
    return str(ref.get("namespace") or owner.namespace), str(ref["name"])
