"""Views (in memory, from the bus): Machines, their classes and their Pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bus.transport.connection import Bus
from bus.views import View
from windowbox.models import machinekeys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NAMESPACES, PODS, ObjectRef
from workers.core.recorder import Recorder
from workers.core.serving import Tasks
from workers.machines.machine import names, specs, statuses

TARGET = "machine.windowbox/target-cluster"
"""Annotation of a control plane's Namespace: `none` if its machines join no Shoot."""

_WAITING = (Phase.UNKNOWN, Phase.IN_PLACE_UPDATE_FAILED)
"""Phases of Machines that wait to be given up. In Gardener's own, failed updates block each other."""

Index = tuple[str, ...]


@dataclass(frozen=True)
class MachineFacts:
    """What of a Machine others depend on."""

    cluster: str
    namespace: str
    name: str
    node: str
    class_name: str
    deployment: str
    phase: str
    since: str
    """When it came to its phase."""
    preserved: bool

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.cluster, MACHINES.id, self.namespace, self.name)


def facts(ref: ObjectRef, machine: Object) -> MachineFacts:
    current = statuses.current(machine)
    return MachineFacts(
        cluster=ref.cluster,
        namespace=ref.namespace,
        name=ref.name,
        node=str(machine.labels.get(machinekeys.NODE) or names.pod(ref.name)),
        class_name=specs.class_name_or_none(machine),
        deployment=str(machine.labels.get(machinekeys.DEPLOYMENT, "")),
        phase=statuses.phase(machine),
        since=str(current.get("lastUpdateTime") or ""),
        preserved=bool(current.get("preserveExpiryTime")),
    )


class MachineViews:
    """Which Machines are of which class and of which MachineDeployment, and which node or Pod is whose."""

    def __init__(self, bus: Bus) -> None:
        self._machines: View[MachineFacts] = View(bus, MACHINES.id, facts, indexes=_machine_indexes)
        self._classes: View[frozenset[Index]] = View(
            bus, MACHINE_CLASSES.id, _secret_keys, indexes=lambda keys: keys
        )
        self._pods: View[str] = View(bus, PODS.id, _pod_name, index=lambda name: name)
        self._namespaces: View[str] = View(bus, NAMESPACES.id, _target)

    @property
    def tasks(self) -> Tasks:
        return {
            "machines": self._machines.run,
            "machine classes": self._classes.run,
            "machine pods": self._pods.run,
            "machine namespaces": self._namespaces.run,
        }

    async def complete(self) -> None:
        """Wait until everything that was there at the start has been seen."""
        for view in (self._machines, self._classes, self._pods, self._namespaces):
            await view.complete.wait()

    def check_listed(self, cluster: str) -> None:
        """Refuse what is final while Machines or classes may be missing."""
        self._machines.require_listed(cluster)
        self._classes.require_listed(cluster)

    def of_node(self, name: str) -> list[MachineFacts]:
        """The Machines, of all Shoots, whose node or Pod has this name."""
        return self._found("node", name)

    def of_class(self, ref: ObjectRef) -> list[MachineFacts]:
        return self._found("class", ref.cluster, ref.namespace, ref.name)

    def of_deployment(self, ref: ObjectRef, name: str) -> list[MachineFacts]:
        """The Machines of a MachineDeployment in the namespace of `ref`."""
        return self._found("deployment", ref.cluster, ref.namespace, name)

    def waiting_in(self, cluster: str, namespace: str) -> list[ObjectRef]:
        """The Machines of a namespace that have not been made yet."""
        found = self._found("home", cluster, namespace)
        return [one.ref for one in found if one.phase in (Phase.NEW, Phase.CRASH_LOOP_BACK_OFF)]

    def has_machines(self, cluster: str, namespace: str) -> bool:
        return bool(self._machines.refs(("home", cluster, namespace)))

    def classes_with(self, secret: ObjectRef) -> list[ObjectRef]:
        """The MachineClasses that refer to a Secret of their namespace."""
        return self._classes.refs((secret.cluster, secret.namespace, secret.name))

    def pods_named(self, name: str) -> list[ObjectRef]:
        """The machine Pods of this name, in all provider clusters."""
        return self._pods.refs(name)

    def joins_no_shoot(self, namespace: ObjectRef) -> bool:
        return self._namespaces.get(namespace) == "none"

    def _found(self, *index: str) -> list[MachineFacts]:
        found = (self._machines.get(ref) for ref in self._machines.refs(index))
        return [one for one in found if one is not None]


async def require_listed(views: MachineViews, cluster: str, recorder: Recorder) -> None:
    """For decisions that cannot be undone: refuse them while Machines or classes may be missing."""

    async def act() -> None:
        views.check_listed(cluster)

    await recorder.call("listed", cluster, act)


def counts_against_permit(one: MachineFacts) -> int:
    """How much a Machine stands in the way of giving up another one of its MachineDeployment (B9-R6)."""
    terminating = one.phase == Phase.TERMINATING
    busy = one.phase not in (*_WAITING, Phase.RUNNING) and not one.preserved
    return int(busy) + int(terminating)


def may_be_given_up(name: str, of_deployment: Sequence[MachineFacts]) -> bool:
    """Whether this Machine may: one at a time, the longest unhealthy first."""
    if sum(counts_against_permit(one) for one in of_deployment if one.name != name):
        return False
    waiting = sorted((one.since, one.name) for one in of_deployment if one.phase in _WAITING)
    return not waiting or waiting[0][1] == name


def _machine_indexes(one: MachineFacts) -> set[Index]:
    return {
        ("node", one.node),
        ("node", names.pod(one.name)),
        ("class", one.cluster, one.namespace, one.class_name),
        ("deployment", one.cluster, one.namespace, one.deployment),
        ("home", one.cluster, one.namespace),
    }


def _secret_keys(ref: ObjectRef, found: Object) -> frozenset[Index]:
    return frozenset((ref.cluster, ref.namespace, name) for name in specs.secrets(found))


def _pod_name(ref: ObjectRef, _: Object) -> str | None:
    return ref.name if names.is_pod(ref.name) else None


def _target(_: ObjectRef, namespace: Object) -> str | None:
    found = namespace.annotations.get(TARGET)
    return str(found) if found else None
