"""The pool `machine`: the keys of Machines, classes, Secrets, Pods and nodes that changes requeue."""

from __future__ import annotations

from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion, Router
from windowbox.kinds import Served
from windowbox.models import machinekeys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NODES, PODS, RUNTIME, SECRETS, ObjectRef
from workers.core.cloudaccounts import CloudAccounts
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.machines import names
from workers.machines.machine import machinenodes, machinespecs, machinestatus, reasons
from workers.machines.machine.cloudmachines import CloudMachines
from workers.machines.machine.machinereconciler import MachineReconciler
from workers.machines.machine.machineviews import (
    JoinWatch,
    KnownMachine,
    MachineViews,
    ProviderClusters,
    Shoots,
    home_of,
)

_WITH_DEADLINE = (Phase.PENDING, Phase.UNKNOWN, Phase.IN_PLACE_UPDATING, Phase.IN_PLACE_UPDATE_FAILED)


class MachineMapping:
    """Maps changes of Machines, classes, Pods and nodes to the keys that they requeue."""

    kinds: tuple[str, ...] = (MACHINES.id, MACHINE_CLASSES.id, PODS.id, NODES.id)
    owned: tuple[str, ...] = (PODS.id, NODES.id)

    def __init__(self, views: MachineViews) -> None:
        self._views = views

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        if ref.kind == MACHINE_CLASSES.id:
            return await self._of_class(ref, change, before)
        if ref.kind == PODS.id and not names.is_pod(ref.name):
            return []
        modified = change.operation == "MODIFIED" and not change.omitted
        old = await before.object() if modified or ref.kind == MACHINES.id else None
        new = None if change.gone or change.omitted else change.object()
        if ref.kind == MACHINES.id:
            # The Machine, and the classes whose finalizers depend on it.
            classes = {machinespecs.class_name_or_none(one) for one in (old, new) if one is not None}
            if new is not None and old is not None and modified:
                if _machine_compared(old) == _machine_compared(new):
                    return []
                classes = classes if len(classes) > 1 else set()  # a changed class may lose its finalizer
            held = [ref._replace(kind=MACHINE_CLASSES.id, name=name) for name in classes if name]
            return [subjects.key(ref), *map(subjects.key, held)]
        compared = reasons.compared if ref.kind == PODS.id else machinenodes.compared
        if new is not None and old is not None and modified and compared(old) == compared(new):
            return []
        await self._views.complete()
        if ref.kind == PODS.id:
            # The Machines that may own the Pod; the Pod itself if there are none: it may be an orphan.
            machines = _keys(self._views.of_node(ref.name))
            return machines if change.gone or machines else [subjects.key(ref)]
        home = home_of(ref.cluster)
        machines = _keys([one for one in self._views.of_node(ref.name) if one.namespace == home])
        if machines or new is None:
            return machines
        # A node without a Machine has to be deleted or released.
        held_by_us = machinekeys.NODE_FINALIZER in new.finalizers
        unnoted = machinekeys.NOT_MANAGED not in new.annotations
        lacks_note = unnoted and self._views.has_machines(RUNTIME, home)
        return [subjects.key(ref)] if held_by_us or lacks_note else []

    def unfinished(self, object: Object) -> bool:
        """Whether a Machine waits for something."""
        if object.deleting:
            return machinekeys.FINALIZER in object.finalizers
        return machinestatus.phase(object) in (*machinestatus.NOT_CREATED, *_WITH_DEADLINE)

    async def _of_class(self, ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        """The class, its Secrets, and the Machines that wait for it, or whose nodes' capacity it changes."""
        new = None if change.gone or change.omitted else change.object()
        old = await before.object()
        versions = [one for one in (old, new) if one is not None]
        if change.operation == "MODIFIED" and len(versions) == 2:
            bodies = [{k: v for k, v in one.raw.items() if k != "metadata"} for one in versions]
            heads = [(one.uid, one.deleting) for one in versions]
            if bodies[0] == bodies[1] and heads[0] == heads[1]:
                # Its Secrets and Machines do not depend on its finalizers, most of which runs write.
                return [subjects.key(ref)] if versions[0].finalizers != versions[1].finalizers else []
        secrets = {name for one in versions for name in machinespecs.secrets(one)}
        held = [ObjectRef(ref.cluster, SECRETS.id, ref.namespace, name) for name in sorted(secrets)]
        await self._views.complete()
        changed = len({str(machinenodes.virtual_capacity(one)) for one in versions}) > 1
        waiting = [
            one.ref for one in self._views.of_class(ref) if changed or one.phase in machinestatus.NOT_CREATED
        ]
        return [subjects.key(one) for one in (ref, *held, *waiting)]


def _machine_compared(machine: Object) -> Any:
    """The part of a Machine that a run depends on, without the fields that runs write themselves."""
    labels = {k: v for k, v in machine.labels.items() if k != machinekeys.NODE}
    annotations = {k: v for k, v in machine.annotations.items() if k != machinekeys.PRIORITY}
    spec = {k: v for k, v in machine.spec.items() if k != "providerID"}
    return machine.uid, machine.metadata.get("deletionTimestamp"), labels, annotations, spec


def _keys(machines: list[KnownMachine]) -> list[str]:
    return sorted(subjects.key(one.ref) for one in machines)


def enabled(common: Common) -> bool:
    return common.kinds.machines.mode != "off"


def reconciler(common: Common, views: MachineViews) -> MachineReconciler:
    machines, accounts = common.kinds.machines, CloudAccounts(common.bus, common.clusters)
    return MachineReconciler(
        common.targets,
        Shoots(common.registry, common.targets, views),
        views,
        machines,
        ProviderClusters(common.targets),
        CloudMachines(common.targets, accounts, common.kinds.clouds, machines.resources),
    )


async def assembled(common: Common, row: Served) -> Parts:
    bus, work, views = common.bus, common.work, MachineViews(common.bus)
    queue = Queue(bus, row.pool)
    joins = JoinWatch(common.registry, views, queue)

    def control_plane(ref: ObjectRef) -> str:
        # A tenant may slow down its Shoot's API server: that Shoot must not take all slots. Nodes have no
        # namespace, and a cluster's nodes are one Shoot's.
        return f"{ref.cluster}/{ref.namespace}"

    return Parts(
        pool=Pool(
            bus,
            row.pool,
            ReconcileHandler(bus, common.clusters, reconciler(common, views), views.complete),
            concurrency=work.concurrency,
            ack_wait=work.ack_wait,
            sharing=control_plane,
        ),
        router=Router(bus, queue, MachineMapping(views)),
        tasks={**views.tasks, "shoots that join": joins.run},
    )
