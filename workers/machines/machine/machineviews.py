"""Views (in memory, from the bus) of Machines, classes and Pods; and the clusters that Machines lead to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from bus import subjects
from bus.clusters.registry import Registry
from bus.messages import Reason, Wish
from bus.transport.connection import Bus
from bus.views import View
from bus.workqueue.queue import Queue
from windowbox.errors import NotJoined, WindowboxError
from windowbox.models import machinekeys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NAMESPACES, PODS, RUNTIME, ObjectRef
from workers.core.joinannotations import KUBECONFIG
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.recorder import Recorder
from workers.core.serving import Tasks
from workers.machines import names
from workers.machines.machine import machinespecs, machinestatus
from workers.machines.machine.machinemanifests import machine_of
from workers.machines.machine.machinespecs import SecretName
from workers.machines.machine.machinestatus import MachineRun
from workers.machines.nodes import SELF_HOSTED, names_shoot

TARGET = "machine.windowbox/target-cluster"
"""Annotation of a control plane's Namespace: `none` if its machines join no Shoot."""

_WAITING = (Phase.UNKNOWN, Phase.IN_PLACE_UPDATE_FAILED)
"""Phases of Machines that wait to be replaced. In Gardener's own, failed updates block each other."""
_MOST_SECRETS = 4096

Index = tuple[str, ...]


@dataclass(frozen=True)
class KnownMachine:
    """The facts about a Machine that other objects depend on."""

    cluster: str
    namespace: str
    name: str
    node: str
    class_name: str
    deployment: str
    phase: str
    since: str
    """The time of its last change of phase."""
    preserved: bool

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.cluster, MACHINES.id, self.namespace, self.name)

    @property
    def indexes(self) -> set[Index]:
        return {
            ("node", self.node),
            ("node", names.pod(self.name)),
            ("class", self.cluster, self.namespace, self.class_name),
            ("deployment", self.cluster, self.namespace, self.deployment),
            ("home", self.cluster, self.namespace),
        }


def may_be_replaced(name: str, of_deployment: Sequence[KnownMachine]) -> bool:
    """Whether this Machine may become Failed: one at a time, the longest unhealthy first (B9-R6)."""
    for one in of_deployment:
        busy = one.phase not in (*_WAITING, Phase.RUNNING) and not one.preserved
        if one.name != name and (busy or one.phase == Phase.TERMINATING):
            return False
    waiting = sorted((one.since, one.name) for one in of_deployment if one.phase in _WAITING)
    return not waiting or waiting[0][1] == name


class MachineViews:
    """The Machines of each class, MachineDeployment and node, and the Pods of each Machine."""

    def __init__(self, bus: Bus) -> None:
        def machine(ref: ObjectRef, found: Object) -> KnownMachine:
            current = machinestatus.current(found)
            return KnownMachine(
                cluster=ref.cluster,
                namespace=ref.namespace,
                name=ref.name,
                node=str(found.labels.get(machinekeys.NODE) or names.pod(ref.name)),
                class_name=machinespecs.class_name_or_none(found),
                deployment=str(found.labels.get(machinekeys.DEPLOYMENT, "")),
                phase=machinestatus.phase(found),
                since=str(current.get("lastUpdateTime") or ""),
                preserved=bool(current.get("preserveExpiryTime")),
            )

        def secrets(ref: ObjectRef, found: Object) -> frozenset[Index]:
            return frozenset((ref.cluster, ref.namespace, name) for name in machinespecs.secrets(found))

        def pod(ref: ObjectRef, _: Object) -> str | None:
            return ref.name if names.is_pod(ref.name) else None

        def target(_: ObjectRef, namespace: Object) -> str | None:
            return str(namespace.annotations.get(TARGET) or "") or None

        self._machines: View[KnownMachine] = View(bus, MACHINES.id, machine, indexes=lambda one: one.indexes)
        self._classes: View[frozenset[Index]] = View(
            bus, MACHINE_CLASSES.id, secrets, indexes=lambda keys: keys
        )
        self._pods: View[str] = View(bus, PODS.id, pod, index=lambda name: name)
        self._namespaces: View[str] = View(bus, NAMESPACES.id, target)

    @property
    def tasks(self) -> Tasks:
        return {
            "machines": self._machines.run,
            "machine classes": self._classes.run,
            "machine pods": self._pods.run,
            "machine namespaces": self._namespaces.run,
        }

    async def complete(self) -> None:
        """Wait until everything that existed at the start has been read."""
        for view in (self._machines, self._classes, self._pods, self._namespaces):
            await view.complete.wait()

    async def require_listed(self, cluster: str, recorder: Recorder) -> None:
        """Refuse decisions that cannot be undone while the view may lack Machines or classes."""

        async def check() -> None:
            self._machines.require_listed(cluster)
            self._classes.require_listed(cluster)

        await recorder.call("listed", cluster, check)

    def of_node(self, name: str) -> list[KnownMachine]:
        """The Machines, of all Shoots, whose node or Pod has this name."""
        return self._found("node", name)

    async def claimants(self, node: str, home: str, recorder: Recorder) -> int:
        """How many Machines of the namespace `home` have a node of this name."""

        async def count() -> int:
            return sum(one.namespace == home for one in self.of_node(node))

        return int(await recorder.call("claimants", node, count))

    def of_class(self, ref: ObjectRef) -> list[KnownMachine]:
        return self._found("class", ref.cluster, ref.namespace, ref.name)

    def of_deployment(self, ref: ObjectRef, name: str) -> list[KnownMachine]:
        """The Machines of a MachineDeployment in the namespace of `ref`."""
        return self._found("deployment", ref.cluster, ref.namespace, name)

    def waiting_in(self, cluster: str, namespace: str) -> list[ObjectRef]:
        """The Machines of a namespace that may have no Pod yet."""
        found = self._found("home", cluster, namespace)
        return [one.ref for one in found if one.phase in machinestatus.NOT_CREATED]

    def has_machines(self, cluster: str, namespace: str) -> bool:
        return bool(self._machines.refs(("home", cluster, namespace)))

    def classes_with(self, secret: ObjectRef) -> list[ObjectRef]:
        """The MachineClasses that refer to a Secret of their namespace."""
        return self._classes.refs((secret.cluster, secret.namespace, secret.name))

    async def pods_of(self, machine: ObjectRef, recorder: Recorder) -> list[tuple[ObjectRef, Object]]:
        """The Pods on the bus that were created for a Machine, in all provider clusters."""

        async def find_pods() -> list[tuple[str, ...]]:
            return [tuple(pod) for pod in self._pods.refs(names.pod(machine.name))]

        refs = [ObjectRef(*found) for found in await recorder.call("pods", None, find_pods)]
        seen = [(ref, await recorder.read(ref)) for ref in refs]
        # Machines of other namespaces may have the name.
        return [(ref, pod) for ref, pod in seen if pod is not None and machine_of(pod) == machine]

    def joins_no_shoot(self, namespace: ObjectRef) -> bool:
        return self._namespaces.get(namespace) == "none"

    def _found(self, *index: str) -> list[KnownMachine]:
        return [one for _, one in self._machines.found(index)]


def home_of(cluster: str) -> str:
    """The namespace of the control plane whose Machines are nodes of a cluster."""
    return SELF_HOSTED if cluster == RUNTIME else cluster


@dataclass(frozen=True)
class Shoots:
    """The clusters of Shoots, by the namespaces of their control planes."""

    registry: Registry
    targets: TargetClusters
    views: MachineViews

    async def target(self, home: ObjectRef, recorder: Recorder) -> TargetCluster | None:
        """The cluster that Machines beside `home` join; None if they join none. Raises NotJoined."""

        async def find_cluster() -> str:
            if names_shoot(home) and home.namespace in self.registry.members:
                return home.namespace
            if home.namespace == SELF_HOSTED:
                return home.cluster
            if self.views.joins_no_shoot(ObjectRef(home.cluster, NAMESPACES.id, "", home.namespace)):
                return ""
            raise NotJoined(
                f"the Shoot's API server is not known yet: annotate Namespace {home.namespace} with "
                f"{KUBECONFIG}, or with {TARGET}: none if its machines join no Shoot"
            )

        cluster = str(await recorder.call("shoot", home.namespace, find_cluster))
        return self.targets.member(cluster, recorder) if cluster else None


@dataclass(frozen=True)
class JoinWatch:
    """Requeues the Machines that wait for their Shoot when it joins: no watched object changes then."""

    registry: Registry
    views: MachineViews
    queue: Queue

    async def run(self) -> None:
        changed = asyncio.Event()
        stop = self.registry.on_change(changed.set)
        known: set[str] = set()
        try:
            await self.views.complete()
            while True:
                changed.clear()
                members = set(self.registry.members)
                for cluster in members - known:
                    with contextlib.suppress(WindowboxError):  # their own retries come later
                        for machine in self.views.waiting_in(RUNTIME, cluster):
                            await self.queue.wish(subjects.key(machine), Wish(reason=Reason.EVENT))
                known = members
                await changed.wait()
        finally:
            stop()


class ProviderClusters:
    """The provider clusters that Secrets led to when runs opened them. Bounded: others are reopened."""

    def __init__(self, targets: TargetClusters) -> None:
        self._targets = targets
        self._known: dict[tuple[str, SecretName], str] = {}

    def note(self, run: MachineRun, secret: SecretName, cluster: str) -> None:
        """Remember the cluster that the Secret leads to now."""
        self._known.pop((run.ref.cluster, secret), None)
        self._known[run.ref.cluster, secret] = cluster
        if len(self._known) > _MOST_SECRETS:
            del self._known[next(iter(self._known))]

    async def of(self, run: MachineRun, secret: SecretName) -> str:
        """The id of the cluster that the Secret leads to."""

        async def find_provider() -> str:
            known = self._known.get((run.ref.cluster, secret))
            if known is None:
                async with self._targets.provider(run.run, *secret) as target:
                    known = target.cluster
                self.note(run, secret, known)
            return known

        return str(await run.recorder.call("provider cluster", "/".join(secret), find_provider))
