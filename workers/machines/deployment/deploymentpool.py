"""The pool `machinedeployment`: the keys that changes requeue, and its parts."""

from __future__ import annotations

from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion, Router
from windowbox.kinds import Served
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, ObjectRef
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.machines import facts, views
from workers.machines.deployment.deploymentreconciler import MachineDeploymentReconciler
from workers.machines.facts import number
from workers.machines.views import MachineViews


class MachineDeploymentMapping:
    """Maps its own changes (not of its status), all changes of its sets, and some of its machines."""

    kinds: tuple[str, ...] = (MACHINE_DEPLOYMENTS.id, MACHINE_SETS.id, MACHINES.id)
    owned: tuple[str, ...] = (MACHINE_SETS.id, MACHINES.id)

    def __init__(self, views: MachineViews) -> None:
        self._views = views

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        if ref.kind == MACHINE_DEPLOYMENTS.id:
            return [subjects.key(ref)] if await views.triggers(change, before) else []
        old = await before.object()
        new = None if change.gone or change.omitted else change.object()
        if ref.kind == MACHINE_SETS.id:
            names = {_owner(one) for one in (old, new) if one} - {""}
            # A set without an owner may be adopted by the deployment that its label names.
            names = names or {str(one.labels.get("name", "")) for one in (old, new) if one} - {""}
        else:
            # The status of a set shows neither that a machine is deleted, nor how far its update is.
            if new is not None and (old is None or _essence(old) == _essence(new)):
                return []
            machine = new or old
            owner = facts.controller(machine) if machine else None
            await self._views.complete()
            sets = self._views.known_sets(ref.cluster, ref.namespace)
            names = {_owner(one.object) for one in sets if owner and one.uid == owner.get("uid")} - {""}
        return sorted(subjects.key(ref._replace(kind=MACHINE_DEPLOYMENTS.id, name=name)) for name in names)

    def unfinished(self, object: Object) -> bool:
        return object.deleting or number(object.status.get("observedGeneration")) < object.generation


def _owner(found: Object) -> str:
    owner = facts.controller(found)
    return str(owner.get("name", "")) if owner and owner.get("kind") == "MachineDeployment" else ""


def _essence(machine: Object) -> Any:
    one = facts.machine(machine)
    return one.terminating, one.update, one.labels.get(keys.UPDATE_RESULT), one.phase if one.update else ""


def enabled(common: Common) -> bool:
    """Whether windowbox serves them; otherwise Gardener's machine-controller-manager does."""
    return common.kinds.machines.mode == "full"


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    reconciler = MachineDeploymentReconciler(common.clusters, views, common.kinds.machines)
    handler = ReconcileHandler(bus, common.clusters, reconciler, views.complete)

    def control_plane(ref: ObjectRef) -> str:
        # A tenant may hold up the API server of its Shoot: one Shoot must not take all slots.
        return f"{ref.cluster}/{ref.namespace}"

    return Parts(
        pool=Pool(
            bus,
            row.pool,
            handler,
            concurrency=work.concurrency,
            ack_wait=work.ack_wait,
            sharing=control_plane,
        ),
        router=Router(bus, Queue(bus, row.pool), MachineDeploymentMapping(views)),
        tasks=views.tasks,
    )
