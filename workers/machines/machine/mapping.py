"""Mapping: from changes of Machines, classes, Pods and nodes to the keys of the pool."""

from __future__ import annotations

from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models import machinekeys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NODES, PODS, RUNTIME, SECRETS, ObjectRef
from workers.machines.machine import names, nodesync, reasons, specs, statuses
from workers.machines.machine.orphans import home_of
from workers.machines.machine.views import MachineFacts, MachineViews

_TO_BE_MADE = (Phase.NEW, Phase.CRASH_LOOP_BACK_OFF)
_TIMED = (Phase.PENDING, Phase.UNKNOWN, Phase.IN_PLACE_UPDATING, Phase.IN_PLACE_UPDATE_FAILED)


class MachineMapping:
    """What concerns which Machine, and which class, Secret or Pod has to be looked at."""

    kinds: tuple[str, ...] = (MACHINES.id, MACHINE_CLASSES.id, PODS.id, NODES.id)
    owned: tuple[str, ...] = (PODS.id, NODES.id)

    def __init__(self, views: MachineViews) -> None:
        self._views = views

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        match ref.kind:
            case MACHINES.id:
                return await self._of_machine(ref, change, before)
            case MACHINE_CLASSES.id:
                return await self._of_class(ref, change, before)
            case PODS.id:
                return await self._of_pod(ref, change, before)
            case _:
                return await self._of_node(ref, change, before)

    def unfinished(self, object: Object) -> bool:
        """Whether a Machine waits for something. Of classes it cannot be seen."""
        if object.raw.get("kind") != MACHINES.kind:
            return False
        if object.deleting:
            return machinekeys.FINALIZER in object.finalizers
        return statuses.phase(object) in (*_TO_BE_MADE, *_TIMED)

    async def _of_machine(self, ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        new = None if change.gone or change.omitted else change.object()
        old = await before.object()
        classes = {specs.class_name_or_none(one) for one in (old, new) if one is not None}
        if new is not None and old is not None and change.operation == "MODIFIED":
            if machine_essence(old) == machine_essence(new):
                return []
            classes = classes if len(classes) > 1 else set()  # the former one is held no longer
        held = [ObjectRef(ref.cluster, MACHINE_CLASSES.id, ref.namespace, name) for name in classes if name]
        return [subjects.key(ref), *map(subjects.key, held)]

    async def _of_class(self, ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        new = None if change.gone or change.omitted else change.object()
        old = await before.object()
        modified = new is not None and old is not None and change.operation == "MODIFIED"
        if modified and _class_essence(old) == _class_essence(new):
            return []
        secrets = {name for one in (old, new) if one is not None for name in specs.secrets(one)}
        held = [ObjectRef(ref.cluster, SECRETS.id, ref.namespace, name) for name in sorted(secrets)]
        await self._views.complete()
        capacity = {str(nodesync.virtual_capacity(one)) for one in (old, new) if one is not None}
        waiting = [one for one in self._views.of_class(ref) if one.phase in _TO_BE_MADE or len(capacity) > 1]
        return [subjects.key(ref), *map(subjects.key, held), *(subjects.key(one.ref) for one in waiting)]

    async def _of_pod(self, ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        if not names.is_pod(ref.name):
            return []
        if change.operation == "MODIFIED" and not change.omitted:
            old = await before.object()
            if old is not None and reasons.essence(old) == reasons.essence(change.object()):
                return []
        await self._views.complete()
        machines = _keys(self._views.of_node(ref.name))
        if change.gone or machines:
            return machines
        return [subjects.key(ref)]  # it may be an orphan

    async def _of_node(self, ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        if change.operation == "MODIFIED" and not change.omitted:
            old = await before.object()
            if old is not None and nodesync.essence(old) == nodesync.essence(change.object()):
                return []
        await self._views.complete()
        home = home_of(ref.cluster)
        machines = _keys([one for one in self._views.of_node(ref.name) if one.namespace == home])
        if machines or change.gone or change.omitted:
            return machines
        node, served = change.object(), self._views.has_machines(RUNTIME, home)
        held = machinekeys.NODE_FINALIZER in node.finalizers
        unnoted = served and machinekeys.NOT_MANAGED not in node.annotations
        return [subjects.key(ref)] if held or unnoted else []


def machine_essence(machine: Object) -> Any:
    """What of a Machine a run depends on. Not what the runs themselves write: who woke up for that would find
    nothing to do."""
    labels = {k: v for k, v in machine.labels.items() if k != machinekeys.NODE}
    annotations = {k: v for k, v in machine.annotations.items() if k != machinekeys.PRIORITY}
    spec = {k: v for k, v in machine.spec.items() if k != "providerID"}
    return machine.uid, machine.metadata.get("deletionTimestamp"), labels, annotations, spec


def _class_essence(found: Object | None) -> Any:
    assert found
    body = {k: v for k, v in found.raw.items() if k != "metadata"}
    return found.uid, found.deleting, found.finalizers, body


def _keys(machines: list[MachineFacts]) -> list[str]:
    return sorted(subjects.key(one.ref) for one in machines)
