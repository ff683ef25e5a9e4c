"""A simulator of machine Pods, as far as a driver sees them: they start, and join as nodes of the Shoot."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.support.running import eventually
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import NODES, PODS

GOOD = {"Ready": "True", "DiskPressure": "False", "MemoryPressure": "False"}


@dataclass
class MachineSimulator:
    """Runs the machine Pods of one namespace, in the cluster `provider`; their nodes are in `shoot`."""

    provider: Kube
    shoot: Kube
    namespace: str
    start: float = 0.0
    """Seconds until a Pod runs."""
    join: float = 0.0
    """Seconds from then until its node is ready."""
    joins: bool = True
    held: set[str] = field(default_factory=set)
    """Pods that the simulator ignores."""
    gone: dict[str, float] = field(default_factory=dict)
    """When each Pod was gone."""
    _seen: set[str] = field(default_factory=set)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                page = await self.provider.page(PODS)
                for raw in page.items:
                    self._take(group, Object(raw))
                with contextlib.suppress(WindowboxError):
                    async for events in self.provider.watch(PODS, page.resource_version):
                        for event in events:
                            if event.type == "DELETED":
                                self.gone[Object(event.object).name] = asyncio.get_running_loop().time()
                            elif event.type != "BOOKMARK":
                                self._take(group, Object(event.object))

    def _take(self, group: asyncio.TaskGroup, pod: Object) -> None:
        if pod.namespace != self.namespace or pod.name in self.held:
            return
        if pod.deleting:
            group.create_task(self._end(pod))
        elif pod.uid not in self._seen:
            self._seen.add(pod.uid)
            group.create_task(self._boot(pod))

    async def _end(self, pod: Object) -> None:
        with contextlib.suppress(WindowboxError):
            await self.provider.remove(PODS, pod.namespace, pod.name, grace=0)

    async def _boot(self, pod: Object) -> None:
        with contextlib.suppress(Missing):
            await asyncio.sleep(self.start)  # what is simulated takes time
            await self.running(pod)
            if self.joins:
                await asyncio.sleep(self.join)  # what is simulated takes time
                await self.node(pod.name)

    async def running(self, pod: Object) -> None:
        """Report that the Pod's container runs."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        container = {"name": "node", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
        state = {"state": {"running": {"startedAt": now}}}
        await self.status(
            pod.name,
            phase="Running",
            podIP="10.9.0.1",
            podIPs=[{"ip": "10.9.0.1"}],
            containerStatuses=[container | state],
        )

    async def status(self, pod: str, **status: Any) -> None:
        """Report the Pod's status."""
        await self.provider.merge(PODS, self.namespace, pod, {"status": status}, part="status")

    async def node(self, name: str, **conditions: str) -> None:
        """Create or update the node with these conditions."""
        said = GOOD | conditions
        status = {"conditions": [{"type": k, "status": v, "reason": "Simulated"} for k, v in said.items()]}
        body = {"metadata": {"name": name}, "status": status}
        with contextlib.suppress(WindowboxError):
            # The API server takes the status with the node, as it does from a kubelet.
            await self.shoot.create(NODES, "", body)
            return
        await self.shoot.strategic_merge(NODES, "", name, {"status": status}, part="status")

    async def until_gone(self, pod: str) -> float:
        """When the Pod was gone."""

        async def look() -> float | None:
            return self.gone.get(pod)

        found = await eventually(look)
        assert found
        return found
