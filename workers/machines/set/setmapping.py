"""Mapping: from a changed MachineSet or Machine to the keys of the MachineSets to reconcile."""

from __future__ import annotations

from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_SETS, MACHINES
from workers.machines import facts, predicates
from workers.machines.sets import MachineSet
from workers.machines.views import MachineViews


class MachineSetMapping:
    """Maps its own changes (not of its status), and changes of the facts of its machines."""

    kinds: tuple[str, ...] = (MACHINE_SETS.id, MACHINES.id)
    owned: tuple[str, ...] = (MACHINES.id,)

    def __init__(self, views: MachineViews) -> None:
        self._views = views

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        if ref.kind == MACHINE_SETS.id:
            return [subjects.key(ref)] if await predicates.triggers(change, before) else []
        old = await before.object()
        new = None if change.gone or change.omitted else change.object()
        if old and new and change.operation == "MODIFIED" and _essence(old) == _essence(new):
            return []
        names = set()
        for machine in (old, new):
            if machine is None:
                continue
            if owner := facts.controller(machine):
                names |= {str(owner.get("name", ""))} if owner.get("kind") == "MachineSet" else set()
                continue
            # A Machine without an owner may be adopted by each set that selects it.
            await self._views.complete()
            labels = facts.strings(machine.labels)
            known = self._views.known_sets(ref.cluster, ref.namespace)
            names |= {s.name for s in known if facts.selects(s.object.spec.get("selector"), labels)}
        return sorted(subjects.key(ref._replace(kind=MACHINE_SETS.id, name=name)) for name in names)

    def unfinished(self, object: Object) -> bool:
        return object.deleting or not MachineSet(object).observed


def _essence(machine: Object) -> Any:
    return {**facts.machine(machine).record(), "version": ""}
