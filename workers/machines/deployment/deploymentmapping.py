"""Mapping: from a changed MachineDeployment, MachineSet or Machine to the keys of MachineDeployments."""

from __future__ import annotations

from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, ObjectRef
from workers.machines import facts, predicates
from workers.machines.facts import number
from workers.machines.views import MachineViews


class MachineDeploymentMapping:
    """Their own changes but those of their status, all of their sets, and machines that are deleted."""

    kinds: tuple[str, ...] = (MACHINE_DEPLOYMENTS.id, MACHINE_SETS.id, MACHINES.id)
    owned: tuple[str, ...] = (MACHINE_SETS.id, MACHINES.id)

    def __init__(self, views: MachineViews) -> None:
        self._views = views

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        match ref.kind:
            case MACHINE_DEPLOYMENTS.id:
                return [subjects.key(ref)] if await predicates.triggers(change, before) else []
            case MACHINE_SETS.id:
                return await self._of_set(ref, change, before)
            case _:
                return await self._of_machine(ref, change, before)

    def unfinished(self, object: Object) -> bool:
        return object.deleting or number(object.status.get("observedGeneration")) < object.generation

    async def _of_set(self, ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        versions = [await before.object(), None if change.gone or change.omitted else change.object()]
        names = {name for one in versions if one and (name := _owner(one))}
        if not names:
            names = {str(one.labels.get("name", "")) for one in versions if one} - {""}
        return sorted(subjects.key(ref._replace(kind=MACHINE_DEPLOYMENTS.id, name=name)) for name in names)

    async def _of_machine(self, ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        """What the status of its set does not tell: that a machine goes, or how far its update is."""
        old = await before.object()
        new = None if change.gone or change.omitted else change.object()
        if new is not None and (old is None or _essence(old) == _essence(new)):
            return []
        machine = new or old
        owner = facts.controller(machine) if machine else None
        await self._views.complete()
        names = {
            _owner(one.object)
            for one in self._views.known_sets(ref.cluster, ref.namespace)
            if owner and one.uid == owner.get("uid")
        } - {""}
        return sorted(subjects.key(ref._replace(kind=MACHINE_DEPLOYMENTS.id, name=name)) for name in names)


def _owner(found: Object) -> str:
    owner = facts.controller(found)
    return str(owner.get("name", "")) if owner and owner.get("kind") == "MachineDeployment" else ""


def _essence(machine: Object) -> Any:
    one = facts.machine(machine)
    return one.terminating, one.update, one.labels.get(keys.UPDATE_RESULT), one.phase if one.update else ""
