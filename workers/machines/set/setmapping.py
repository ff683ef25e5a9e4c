"""Mapping: from a changed MachineSet or Machine to the keys of the MachineSets to reconcile."""

from __future__ import annotations

from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_SETS, MACHINES, ObjectRef
from workers.machines import facts, predicates
from workers.machines.sets import MachineSet
from workers.machines.views import MachineViews


class MachineSetMapping:
    """Their own changes but those of their status, and what counts of their machines."""

    kinds: tuple[str, ...] = (MACHINE_SETS.id, MACHINES.id)
    owned: tuple[str, ...] = (MACHINES.id,)

    def __init__(self, views: MachineViews) -> None:
        self._views = views

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        if ref.kind == MACHINE_SETS.id:
            return [subjects.key(ref)] if await predicates.triggers(change, before) else []
        return await self._of_machine(ref, change, before)

    def unfinished(self, object: Object) -> bool:
        return object.deleting or not MachineSet(object).observed

    async def _of_machine(self, ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        old = await before.object()
        new = None if change.gone or change.omitted else change.object()
        if old and new and change.operation == "MODIFIED" and _essence(old) == _essence(new):
            return []
        names = {name for one in (old, new) if one for name in await self._owners(ref, one)}
        return sorted(subjects.key(ref._replace(kind=MACHINE_SETS.id, name=name)) for name in names)

    async def _owners(self, ref: ObjectRef, machine: Object) -> list[str]:
        """The set that a machine names, or the sets that may adopt it."""
        if owner := facts.controller(machine):
            return [str(owner.get("name", ""))] if owner.get("kind") == "MachineSet" else []
        await self._views.complete()
        return [
            one.name
            for one in self._views.known_sets(ref.cluster, ref.namespace)
            if facts.selects(one.object.spec.get("selector"), facts.strings(machine.labels))
        ]


def _essence(machine: Object) -> Any:
    return {**facts.machine(machine).record(), "version": ""}
