"""The pool `machineset`: the keys that changes requeue, and its parts."""

from __future__ import annotations

from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion, Router
from windowbox.kinds import Served
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_SETS, MACHINES
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.machines import facts, views
from workers.machines.set.setreconciler import MachineSetReconciler
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
            return [subjects.key(ref)] if await views.triggers(change, before) else []
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


def enabled(common: Common) -> bool:
    """Whether windowbox creates Machines; otherwise Gardener's machine-controller-manager does."""
    return common.kinds.machines.mode == "full"


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    reconciler = MachineSetReconciler(common.clusters, views, common.kinds.machines)
    handler = ReconcileHandler(bus, common.clusters, reconciler, views.complete)
    return Parts(
        pool=Pool(bus, row.pool, handler, concurrency=work.concurrency, ack_wait=work.ack_wait),
        router=Router(bus, Queue(bus, row.pool), MachineSetMapping(views)),
        tasks=views.tasks,
    )
