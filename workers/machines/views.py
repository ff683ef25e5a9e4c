"""Views (in memory, from the bus) of MachineSets and Machines, and the changes that requeue their owners."""

from __future__ import annotations

from typing import Any

from bus.messages import Announcement
from bus.transport.connection import Bus
from bus.views import View
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_SETS, MACHINES, ObjectRef
from workers.core.recorder import Recorder
from workers.core.serving import Tasks
from workers.machines import facts
from workers.machines.facts import MachineFacts
from workers.machines.sets import MachineSet, oldest_first

_Home = tuple[str, str]
"""Cluster and namespace, the index of both views."""


class MachineViews:
    """The Machines and MachineSets of each namespace."""

    def __init__(self, bus: Bus) -> None:
        def machine(ref: ObjectRef, found: Object) -> tuple[_Home, MachineFacts]:
            return (ref.cluster, ref.namespace), facts.machine(found)

        def machine_set(ref: ObjectRef, found: Object) -> tuple[_Home, MachineSet]:
            return (ref.cluster, ref.namespace), MachineSet(found)

        self._machines = View(bus, MACHINES.id, machine, index=lambda entry: entry[0])
        self._sets = View(bus, MACHINE_SETS.id, machine_set, index=lambda entry: entry[0])

    @property
    def tasks(self) -> Tasks:
        return {"machines": self._machines.run, "machine sets": self._sets.run}

    async def complete(self) -> None:
        """Wait until everything that existed at the start has been read."""
        await self._machines.complete.wait()
        await self._sets.complete.wait()

    async def machines(self, namespace: ObjectRef, recorder: Recorder) -> list[MachineFacts]:
        """The Machines beside an object, by name, as current as the event that started this run."""

        async def current_machines() -> list[dict[str, Any]]:
            home = namespace.cluster, namespace.namespace
            await self._machines.caught_up(*home)
            by_name = sorted(self._machines.found(home), key=lambda found: found[0])
            return [machine.record() for _, (_, machine) in by_name]

        return [
            MachineFacts.from_record(one) for one in await recorder.call("machines", None, current_machines)
        ]

    async def sets(self, namespace: ObjectRef, recorder: Recorder) -> list[MachineSet]:
        """The MachineSets beside an object, oldest first, as current as the event that started this run."""

        async def current_sets() -> list[Any]:
            home = namespace.cluster, namespace.namespace
            await self._sets.caught_up(*home)
            return [dict(one.object.raw) for _, (_, one) in self._sets.found(home)]

        found = await recorder.call("machine sets", None, current_sets)
        return oldest_first(MachineSet(Object(one)) for one in found)

    def known_sets(self, cluster: str, namespace: str) -> list[MachineSet]:
        """The MachineSets of a namespace, perhaps a moment old. For mappings, not for decisions."""
        return [one for _, (_, one) in self._sets.found((cluster, namespace))]


async def triggers(change: Announcement, before: PreviousVersion) -> bool:
    """All changes but those of the status, which runs make themselves."""
    if change.gone or change.omitted or change.operation != "MODIFIED":
        return not change.gone
    old = await before.object()

    def compared(found: Object) -> Any:
        return found.uid, found.generation, found.deleting, found.labels, found.annotations, found.finalizers

    return old is None or compared(old) != compared(change.object())
