"""A simulated machine driver: it sets the phases of Machines as if their nodes joined, without Pods."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, WindowboxError
from windowbox.models import machinekeys as keys
from windowbox.models.extensions import spelled
from windowbox.models.machines import OperationState, Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES, NODES


@dataclass
class SimulatedDriver:
    """Drives all Machines of a cluster, or of one namespace."""

    kube: Kube
    namespace: str = ""
    joining: float = 0.02
    """Seconds from Pending to Running."""
    leaving: float = 0.0
    """Seconds until a deleted Machine is gone."""
    joins: asyncio.Semaphore | None = None
    """If set, a Machine becomes Running with each release."""
    leaves: asyncio.Semaphore | None = None
    """If set, a deleted Machine goes with each release."""
    nodes: Kube | None = None
    """The cluster in which nodes are created for them, if any."""
    seen: list[Object] = field(default_factory=list)
    """Versions of Machines, in the order in which they were announced; only with `remembers`."""
    remembers: bool = False
    ran: list[float] = field(default_factory=list)
    """When each Machine became Running."""
    _busy: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _versions: dict[str, Object] = field(default_factory=dict)

    def hold(self) -> None:
        """From now on, Machines join and go only when they are released."""
        self.joins, self.leaves = asyncio.Semaphore(0), asyncio.Semaphore(0)

    def release(self, joined: int = 0, left: int = 0) -> None:
        """Let so many Machines join, and so many deleted ones go."""
        for gate, times in ((self.joins, joined), (self.leaves, left)):
            for _ in range(times):
                assert gate
                gate.release()

    async def run(self) -> None:
        """Simulate for ever."""
        try:
            while True:
                with contextlib.suppress(WindowboxError):
                    await self._follow()
                await asyncio.sleep(0.1)  # before it connects again
        finally:
            for task in self._busy.values():
                task.cancel()

    async def _follow(self) -> None:
        version = ""
        async for page in self.kube.pages(MACHINES):
            version = page.resource_version
            for raw in page.items:
                self._take(Object(raw))
        async for events in self.kube.watch(MACHINES, version):
            for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    self._take(Object(event.object))
                elif event.type == "DELETED":
                    self._versions.pop(Object(event.object).uid, None)
                    if self.remembers:
                        self.seen.append(Object(event.object))

    def _take(self, machine: Object) -> None:
        if self.namespace and machine.namespace != self.namespace:
            return
        if self.remembers:
            self.seen.append(machine)
        self._versions[machine.uid] = machine
        if machine.uid not in self._busy:
            task = asyncio.create_task(self._live(machine.uid))
            self._busy[machine.uid] = task
            task.add_done_callback(lambda _: self._busy.pop(machine.uid, None))

    async def _live(self, uid: str) -> None:
        """Take steps with a Machine until none is left."""
        while machine := self._versions.get(uid):
            try:
                if not await self._step(machine):
                    return
            except Conflict:
                await asyncio.sleep(0.01)  # another client has changed it
            except Missing:
                self._versions.pop(uid, None)
            except WindowboxError:
                await asyncio.sleep(0.2)  # the API server is away

    async def _step(self, machine: Object) -> bool:
        phase = _phase(machine)
        if machine.deleting:
            return await self._leave(machine)
        if keys.FINALIZER not in machine.finalizers or not machine.spec.get("providerID"):
            await self._prepare(machine)
        elif phase == Phase.NEW:
            await self._set(machine, Phase.PENDING, OperationState.PROCESSING)
        elif phase == Phase.PENDING:
            # As long as a node takes to join.
            await (self.joins.acquire() if self.joins else asyncio.sleep(self.joining))
            machine = self._versions.get(machine.uid, machine)
            if not machine.deleting:
                if self.nodes:
                    body = {
                        "apiVersion": "v1",
                        "kind": "Node",
                        "metadata": {"name": f"machine-{machine.name}"},
                    }
                    with contextlib.suppress(Conflict):
                        await self.nodes.create(NODES, "", body)
                await self._set(machine, Phase.RUNNING, OperationState.SUCCESSFUL)
                self.ran.append(time.perf_counter())
        else:
            return False
        return True

    async def _prepare(self, machine: Object) -> None:
        metadata = {
            "resourceVersion": machine.resource_version,
            "finalizers": [keys.FINALIZER],
            "labels": {keys.NODE: f"machine-{machine.name}"},
            "annotations": {keys.PRIORITY: machine.annotations.get(keys.PRIORITY, "3")},
        }
        patch = {"metadata": metadata, "spec": {"providerID": f"machine-{machine.name}"}}
        changed = await self.kube.merge(MACHINES, machine.namespace, machine.name, patch)
        self._versions[machine.uid] = changed

    async def _leave(self, machine: Object) -> bool:
        if keys.FINALIZER not in machine.finalizers:
            return False
        if _phase(machine) != Phase.TERMINATING:
            await self._set(machine, Phase.TERMINATING, OperationState.PROCESSING)
        # As long as a Pod takes to end.
        await (self.leaves.acquire() if self.leaves else asyncio.sleep(self.leaving))
        if self.nodes:
            await self.nodes.remove(NODES, "", f"machine-{machine.name}")
        patch = {"metadata": {"uid": machine.uid, "finalizers": []}}
        await self.kube.merge(MACHINES, machine.namespace, machine.name, patch)
        self._versions.pop(machine.uid, None)
        return False

    async def _set(self, machine: Object, phase: Phase, state: OperationState) -> None:
        self._versions[machine.uid] = await set_phase(self.kube, machine, phase, state)


async def set_phase(
    kube: Kube, machine: Object, phase: Phase, state: OperationState = OperationState.SUCCESSFUL
) -> Object:
    """Write the phase of a Machine."""
    now = spelled(datetime.now(UTC))
    operation: dict[str, Any] = {"type": "Create", "state": state, "description": f"simulated: {phase}"}
    operation["lastUpdateTime"] = now
    patch = {
        "metadata": {"resourceVersion": machine.resource_version},
        "status": {"currentStatus": {"phase": phase, "lastUpdateTime": now}, "lastOperation": operation},
    }
    return await kube.merge(MACHINES, machine.namespace, machine.name, patch, part="status")


def _phase(machine: Object) -> str:
    current = machine.status.get("currentStatus") or {}
    return str(current.get("phase") or "")
