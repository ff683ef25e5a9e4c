"""A simulated machine-controller-manager: writes the statuses that Workers read; no machine runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, WindowboxError
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES

VERSION = "machine.sapcloud.io/v1alpha1"


@dataclass
class SimulatedMCM:
    """Rolls at once: a set of the wanted class has all machines, and former sets are deleted."""

    kube: Kube
    namespace: str
    held: bool = False
    """While held, new machines do not become available, and old machines are not deleted."""
    kept_asleep: bool = False
    """While set, unwanted machines stay."""
    failed: dict[str, str] = field(default_factory=dict)
    """Machines that have failed, with the reason."""
    failed_when_deleted: str = ""
    """While set, machines cannot be deleted, for this reason."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in (MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES):
                tasks.create_task(self._watch(kind))
            tasks.create_task(self._work())

    async def _watch(self, kind: Any) -> None:
        mine = kind._replace(within=self.namespace)
        while True:
            with contextlib.suppress(WindowboxError):
                page = await self.kube.page(mine, limit=1)
                self._changed.set()
                async for _ in self.kube.watch(mine, page.resource_version):
                    self._changed.set()

    async def _work(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                for deployment in await self._all(MACHINE_DEPLOYMENTS):
                    await self._reconcile(deployment)
            except (Conflict, Missing):
                self._changed.set()

    async def _reconcile(self, deployment: Object) -> None:
        sets = [one for one in await self._all(MACHINE_SETS) if _owned(one, deployment)]
        machines = [one for one in await self._all(MACHINES) if _owned(one, deployment)]
        if deployment.deleting:
            await self._remove(deployment, sets, machines)
            return
        if keys.FINALIZER not in deployment.finalizers:
            patch = {"metadata": {"finalizers": [keys.FINALIZER]}}
            deployment = await self.kube.merge(MACHINE_DEPLOYMENTS, self.namespace, deployment.name, patch)
        wanted, class_name = deployment.spec.get("replicas", 0), _class(deployment)
        if not any(_class(one) == class_name for one in sets):
            await self._create_set(deployment, f"{deployment.name}-{len(class_name)}{class_name[-5:]}")
        for old in sets:
            if _class(old) != class_name and not self.held:
                await self.kube.remove(MACHINE_SETS, self.namespace, old.name)
        for number in range(wanted):
            name = f"{deployment.name}-{class_name[-5:]}-{number}"
            if not any(one.name == name for one in machines):
                await self._create_machine(deployment, name)
        surplus = () if self.kept_asleep else machines
        for one in surplus:
            if (
                not one.name.startswith(f"{deployment.name}-{class_name[-5:]}-")
                or int(one.name[-1]) >= wanted
            ):
                await self.kube.remove(MACHINES, self.namespace, one.name)
        await self._report(deployment, max(wanted, len(machines) if self.kept_asleep else 0))

    async def _remove(self, deployment: Object, sets: list[Object], machines: list[Object]) -> None:
        if self.failed_when_deleted:
            self.failed["m-1"] = self.failed_when_deleted
            await self._report(deployment, 1)
            self.failed.clear()
        if self.held or self.failed_when_deleted:
            return
        for one in machines:
            await self.kube.remove(MACHINES, self.namespace, one.name)
        for one in sets:
            await self.kube.remove(MACHINE_SETS, self.namespace, one.name)
        await self.kube.merge(
            MACHINE_DEPLOYMENTS, self.namespace, deployment.name, {"metadata": {"finalizers": None}}
        )

    async def _report(self, deployment: Object, wanted: int) -> None:
        available = 0 if self.held else wanted
        reason = "MinimumReplicasAvailable" if available == wanted else "MinimumReplicasUnavailable"
        condition = {
            "type": "Available",
            "status": "True" if available == wanted else "False",
            "reason": reason,
            "message": "Deployment has minimum availability." if available == wanted else "Not yet.",
        }
        status = {
            "observedGeneration": deployment.generation,
            "replicas": wanted,
            "updatedReplicas": wanted,
            "readyReplicas": available,
            "availableReplicas": available,
            "unavailableReplicas": wanted - available,
            "conditions": [condition],
            "failedMachines": [
                {"name": name, "lastOperation": {"description": reason, "state": "Failed", "type": "Create"}}
                for name, reason in self.failed.items()
            ],
        }
        if {name: deployment.status.get(name) for name in status} != status:
            await self.kube.merge(
                MACHINE_DEPLOYMENTS, self.namespace, deployment.name, {"status": status}, part="status"
            )

    async def _create_set(self, deployment: Object, name: str) -> None:
        body = {
            "apiVersion": VERSION,
            "kind": MACHINE_SETS.kind,
            "metadata": {"name": name, "ownerReferences": [_reference(deployment)]},
            "spec": {"template": deployment.spec["template"], "replicas": deployment.spec.get("replicas", 0)},
        }
        with contextlib.suppress(Conflict):
            await self.kube.create(MACHINE_SETS, self.namespace, body)

    async def _create_machine(self, deployment: Object, name: str) -> None:
        labels = {"name": deployment.name}
        body = {
            "apiVersion": VERSION,
            "kind": MACHINES.kind,
            "metadata": {"name": name, "labels": labels, "ownerReferences": [_reference(deployment)]},
            "spec": deployment.spec["template"]["spec"],
        }
        with contextlib.suppress(Conflict):
            await self.kube.create(MACHINES, self.namespace, body)

    async def _all(self, kind: Any) -> list[Object]:
        page = await self.kube.page(kind._replace(within=self.namespace), limit=5000)
        return [Object(raw) for raw in page.items]


def _class(found: Object) -> str:
    return str(found.spec["template"]["spec"]["class"]["name"])


def _owned(found: Object, deployment: Object) -> bool:
    owners = found.metadata.get("ownerReferences") or []
    if not owners:
        return found.labels.get("name") == deployment.name
    return any(one["uid"] == deployment.uid for one in owners)


def _reference(deployment: Object) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": MACHINE_DEPLOYMENTS.kind,
        "name": deployment.name,
        "uid": deployment.uid,
        "controller": True,
    }


@contextlib.asynccontextmanager
async def simulated(kube: Kube, namespace: str) -> AsyncIterator[SimulatedMCM]:
    """Run one in a namespace."""
    mcm = SimulatedMCM(kube, namespace)
    task = asyncio.create_task(mcm.run(), name="simulated machine-controller-manager")
    try:
        yield mcm
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            raise error
