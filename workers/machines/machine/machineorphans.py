"""Orphans: Pods and nodes without a Machine are deleted. Finalizers protect classes and Secrets in use.

Nothing is deleted while a Shoot moves between seeds: its Machines are deleted on one and recreated on the
other, and its nodes keep running.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bus.messages import Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished, backoff
from windowbox.errors import Missing, TransientError
from windowbox.models import machinekeys, refs
from windowbox.models.extensions import OPERATION, instant
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import ObjectRef, Resource
from windowbox.settings.cloudsettings import CloudSettings
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock
from workers.core.lifecycle.actuators import Run
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.machines import names
from workers.machines.machine import machinespecs, nodedrain
from workers.machines.machine.machinemanifests import machine_of
from workers.machines.machine.machineviews import MachineViews, home_of
from workers.machines.machine.nodedrain import NodeDrain
from workers.machines.moving import leaves, moves, shoot_is_leaving

_RETRY = 60.0
_LONGEST_WAIT = 300.0


@dataclass(frozen=True)
class Orphans:
    targets: TargetClusters
    views: MachineViews
    settings: MachineSettings
    clouds: CloudSettings

    async def pods_of_deleted(self, machine: ObjectRef, recorder: Recorder) -> Outcome:
        """Delete the Pods of a Machine that is gone: some are left if a person removed its finalizer."""
        left: Outcome = Ignored("gone")
        for pod, _ in await self.views.pods_of(machine, recorder):
            outcome = await self.pod(pod, recorder)
            left = outcome if left.requeue is None else left
        return left

    async def pod(self, ref: ObjectRef, recorder: Recorder) -> Outcome:
        """Delete the Pod `ref` if it has no Machine."""
        pod = await recorder.read(ref)
        if pod is None:
            return Ignored("gone")
        machine = None if pod.deleting else machine_of(pod)
        if machine is None:
            return Ignored("not ours")
        run = Run(machine, Object({}), None, recorder)
        own = self.targets.own_cluster(run)
        if await own.cached(refs.MACHINES, machine.namespace, machine.name):
            return Ignored()
        if await own.cached(refs.NAMESPACES, "", machine.namespace) is None:
            return Ignored("its control plane is in another cluster, or gone")
        await self.views.require_listed(machine.cluster, recorder)
        owners = await _owners(own, machine.namespace, self.clouds)
        if await _is_moving(own, machine.namespace, owners):
            return _moving()
        if why := await _reason_to_keep(own, machine, owners):
            return Unfinished(why)
        for secret in sorted({tuple(one["secret"]) for one in owners if one["secret"]}):
            async with self.targets.provider(run, *secret) as target:
                if target.cluster == ref.cluster:
                    await target.remove(refs.PODS, ref.namespace, ref.name, grace=0)
                    return Done(f"there is no Machine {machine.namespace}/{machine.name}")
        return Unfinished(f"no Secret in {machine.namespace} leads to {ref.cluster}")

    async def node(self, ref: ObjectRef, recorder: Recorder) -> Outcome:
        """Delete a node whose machine is gone; release one that never had a machine.

        A released node loses our finalizer if it is being deleted, and gets an annotation otherwise, once the
        creation timeout of a machine that could claim it is over.
        """
        node = await recorder.read(ref)
        if node is None or (node.deleting and machinekeys.NODE_FINALIZER not in node.finalizers):
            return Ignored()
        now = await clock.now(recorder)
        age = (now - (instant(node.metadata.get("creationTimestamp")) or now)).total_seconds()
        joins = self.settings.creation_timeout - age
        just_joined = Unfinished("it has just come", RequeueAfter(Wish(reason=Reason.DUE), joins + 1))
        # Finalizer and label are written when a machine joins. Machines of our own cluster's nodes usually
        # live in another cluster.
        marked = machinekeys.NODE_FINALIZER in node.finalizers and machinekeys.NODE_MACHINE in node.labels
        had_machine = ref.cluster != refs.RUNTIME and marked
        if not (node.deleting or had_machine) and joins > 0:
            return just_joined
        name = str(node.labels.get(machinekeys.NODE_MACHINE) or node.name)
        machine = ObjectRef(refs.RUNTIME, refs.MACHINES.id, home_of(ref.cluster), name)
        own = self.targets.own_cluster(Run(machine, Object({}), None, recorder))
        await self.views.require_listed(machine.cluster, recorder)
        if await own.live(refs.MACHINES, machine.namespace, machine.name) is not None:
            return Ignored()
        if await self.views.claimants(node.name, machine.namespace, recorder):
            return Ignored()
        if had_machine and not node.deleting:
            if outcome := await self._remove(ref, node, machine, own, now):
                return outcome
            if joins > 0:
                return just_joined
        head: dict[str, Any] = {"$deleteFromPrimitiveList/finalizers": [machinekeys.NODE_FINALIZER]}
        if not node.deleting:
            head["annotations"] = {machinekeys.NOT_MANAGED: "1"}
        patch = {"metadata": {**head, "uid": node.uid}}
        await self.targets.member(ref.cluster, recorder).strategic_merge(refs.NODES, "", ref.name, patch)
        return Done("released")

    async def _remove(
        self, ref: ObjectRef, node: Object, machine: ObjectRef, own: TargetCluster, now: datetime
    ) -> Outcome | None:
        """Delete the node of a machine that is gone, and its Pods. None if it may belong to somebody else."""
        owners = await _owners(own, machine.namespace, self.clouds)
        if await _is_moving(own, machine.namespace, owners):
            return _moving()
        if await _reason_to_keep(own, machine, owners):
            return None
        if await self.views.pods_of(machine, own.recorder):
            # When the Pod ends, the node is no longer Ready: that event requeues the node.
            return Unfinished(f"Pod {names.pod(machine.name)} has not ended")
        shoot = self.targets.member(ref.cluster, own.recorder)
        drain = NodeDrain(shoot, node, now)
        await drain.step(nodedrain.Mode(forced=True, machine_too=True), evicting=False)
        await drain.detach()
        head = {"uid": node.uid, "$deleteFromPrimitiveList/finalizers": [machinekeys.NODE_FINALIZER]}
        await shoot.strategic_merge(refs.NODES, "", node.name, {"metadata": head})
        await shoot.remove(refs.NODES, "", node.name, uid=node.uid)
        return Done(f"there is no Machine {machine.namespace}/{machine.name}")


async def are_leaving(own: TargetCluster, namespace: str) -> bool:
    """Whether the machines of a namespace are being handed over to another seed."""
    found = await _listed(own, refs.WORKERS, namespace, CloudSettings())
    return await _is_moving(own, namespace, found, leaves)


async def _is_moving(
    own: TargetCluster, namespace: str, owners: list[dict[str, Any]], how: Callable[..., bool] = moves
) -> bool:
    """Whether the Shoot moves between seeds, by default in either direction."""

    async def shoot_leaves() -> bool:
        api = await own.connection.api()
        found = await api.find(refs.CLUSTERS, "", namespace)
        return found is not None and shoot_is_leaving(found)

    if any(how(one["operation"], one["lastOperation"]) for one in owners):
        return True
    return bool(await own.recorder.call("leaving", namespace, shoot_leaves))


def _moving() -> Outcome:
    again = RequeueAfter(Wish(reason=Reason.DUE), _RETRY)
    return Unfinished("the Shoot is being moved to another seed, or from one", again)


async def _reason_to_keep(own: TargetCluster, machine: ObjectRef, owners: list[dict[str, Any]]) -> str:
    """Why the Pod or node stays for now; empty if it is an orphan."""
    home = machine.namespace
    if await own.live(refs.MACHINES, home, machine.name) is not None:
        return f"Machine {home}/{machine.name} has just been made"
    namespace = await own.live(refs.NAMESPACES, "", home)
    if namespace is None or namespace.deleting:
        return f"namespace {home} is gone: its machines are removed by the client that removed it"
    if not owners:
        return f"nothing in namespace {home} says that its machines are ours"
    return ""


async def _owners(own: TargetCluster, namespace: str, clouds: CloudSettings) -> list[dict[str, Any]]:
    """The Workers and MachineClasses of a control plane: they make machines ours."""
    return [
        *await _listed(own, refs.WORKERS, namespace, clouds),
        *await _listed(own, refs.MACHINE_CLASSES, namespace, clouds),
    ]


async def _listed(
    own: TargetCluster, resource: Resource, namespace: str, clouds: CloudSettings
) -> list[dict[str, Any]]:
    """The operations of a kind's objects in the namespace, and the Secrets that lead to their machines."""

    async def list_operations() -> list[dict[str, Any]]:
        api, found = await own.connection.api(), []
        async for one in api.objects(resource._replace(within=namespace)):
            ref = mapping(one.raw.get("credentialsSecretRef") or one.spec.get("secretRef"))
            secret: tuple[str, ...] | None = (
                (str(ref.get("namespace") or one.namespace), str(ref["name"])) if ref.get("name") else None
            )
            if str(one.raw.get("provider") or one.spec.get("type")).lower() in clouds.types:
                secret = (clouds.provider_secret.namespace, clouds.provider_secret.name)
            found.append(
                {
                    "name": one.name,
                    "operation": one.annotations.get(OPERATION),
                    "lastOperation": {name: one.last_operation.get(name) for name in ("type", "state")},
                    "secret": secret,
                }
            )
        return found

    return list(
        await own.recorder.call("list", {"kind": resource.id, "namespace": namespace}, list_operations)
    )


@dataclass(frozen=True)
class Finalizers:
    """Finalizers on MachineClasses that Machines use, and on Secrets that classes refer to (B13)."""

    targets: TargetClusters
    views: MachineViews

    async def of_class(self, request: Request) -> Outcome:
        """Add or remove the finalizer of a MachineClass."""
        ref, recorder = request.ref, request.recorder
        found = await recorder.read(ref)
        if found is None:
            return Ignored("gone")
        held = machinekeys.FINALIZER in found.finalizers

        async def is_used() -> bool:
            return bool(self.views.of_class(ref))

        wanted = bool(await recorder.call("machines", None, is_used))
        if wanted == held or (wanted and found.deleting):
            return Ignored()
        own = self.targets.own_cluster(Run(ref, found, None, recorder))
        if held:
            await self.views.require_listed(ref.cluster, recorder)
            if await _any(
                own,
                refs.MACHINES,
                ref.namespace,
                lambda one: machinespecs.class_name_or_none(one) == ref.name,
            ):
                return _retry(request, "a Machine of this class has just been made")
        others = [one for one in found.finalizers if one != machinekeys.FINALIZER]
        head = {
            "uid": found.uid,
            "resourceVersion": found.resource_version,
            "finalizers": [*others, machinekeys.FINALIZER] if wanted else others,
        }
        await own.merge(refs.MACHINE_CLASSES, ref.namespace, ref.name, {"metadata": head})
        return Done("ensured")

    async def of_secret(self, request: Request) -> Outcome:
        """Add or remove the finalizer of a Secret."""
        ref, recorder = request.ref, request.recorder
        own = self.targets.own_cluster(Run(ref, Object({}), None, recorder))

        async def is_used() -> bool:
            return bool(self.views.classes_with(ref))

        async def is_held() -> bool | None:
            api = await own.connection.api()
            try:
                found = await api.get(refs.SECRETS, ref.namespace, ref.name)
            except Missing:
                return None
            # A Secret that is being deleted accepts no finalizer: without ours, it counts as gone.
            held = machinekeys.SECRET_FINALIZER in found.finalizers
            return None if found.deleting and not held else held

        wanted = bool(await recorder.call("classes", None, is_used))
        held: bool | None = await recorder.call("look", str(ref), is_held)
        if held is None and wanted:
            # Secrets are not watched: no event reports that it is created.
            attempt = request.wish.attempt + 1
            pause = backoff(attempt, first=1.0, longest=_LONGEST_WAIT)
            again = RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), pause)
            return Unfinished("the Secret does not exist", again)
        if held is None:
            return Ignored("gone")
        if held == wanted:
            return Ignored()
        if held:
            await self.views.require_listed(ref.cluster, recorder)
            if await _any(
                own, refs.MACHINE_CLASSES, ref.namespace, lambda one: ref.name in machinespecs.secrets(one)
            ):
                return _retry(request, "a MachineClass with this Secret has just been made")
        key = "finalizers" if wanted else "$deleteFromPrimitiveList/finalizers"
        patch = {"metadata": {key: [machinekeys.SECRET_FINALIZER]}}
        await own.strategic_merge(refs.SECRETS, ref.namespace, ref.name, patch)
        return Done("ensured")


async def _any(
    own: TargetCluster, resource: Resource, namespace: str, matches: Callable[[Object], bool]
) -> bool:
    """Whether one of the namespace's objects matches, according to the API."""

    async def any_matches() -> bool:
        api = await own.connection.api()
        async for found in api.objects(resource._replace(within=namespace)):
            if matches(found):
                return True
        return False

    return bool(await own.recorder.call("list", {"kind": resource.id, "namespace": namespace}, any_matches))


def _retry(request: Request, note: str) -> Outcome:
    return Unfinished(note, request.retry(TransientError(note)))
