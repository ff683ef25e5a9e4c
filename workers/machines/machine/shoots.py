"""Where the machines of a control plane become nodes: the cluster of its Shoot."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from bus import subjects
from bus.clusters.registry import Registry
from bus.messages import Reason, Wish
from bus.workqueue.queue import Queue
from windowbox.errors import NotJoined, WindowboxError
from windowbox.models.refs import NAMESPACES, RUNTIME, ObjectRef
from workers.core.joinannotations import KUBECONFIG
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.recorder import Recorder
from workers.machines.machine.views import TARGET, MachineViews
from workers.machines.nodes import SELF_HOSTED, names_shoot


@dataclass(frozen=True)
class Shoots:
    """The clusters of Shoots, by the namespaces of their control planes."""

    registry: Registry
    targets: TargetClusters
    views: MachineViews

    def cluster(self, home: ObjectRef) -> str | None:
        """The id of the cluster that Machines like `home` join; None if they join none."""
        if names_shoot(home) and home.namespace in self.registry.members:
            return home.namespace
        if home.namespace == SELF_HOSTED:
            return home.cluster
        if self.views.joins_no_shoot(ObjectRef(home.cluster, NAMESPACES.id, "", home.namespace)):
            return None
        raise NotJoined(
            f"the Shoot's API server is not known yet: annotate Namespace {home.namespace} with "
            f"{KUBECONFIG}, or with {TARGET}: none if its machines join no Shoot"
        )

    async def target(self, home: ObjectRef, recorder: Recorder) -> TargetCluster | None:
        """The same, as a run reaches it."""

        async def act() -> str:
            return self.cluster(home) or ""

        cluster = str(await recorder.call("shoot", home.namespace, act))
        return self.targets.member(cluster, recorder) if cluster else None


@dataclass(frozen=True)
class JoinWatch:
    """Has those Machines looked at that wait for their Shoot, when it joins: no object tells of that."""

    registry: Registry
    views: MachineViews
    queue: Queue

    async def run(self) -> None:
        changed = asyncio.Event()
        stop = self.registry.on_change(changed.set)
        known: set[str] = set()
        try:
            await self.views.complete()
            while True:
                changed.clear()
                members = set(self.registry.members)
                for cluster in members - known:
                    with contextlib.suppress(WindowboxError):  # they look again by themselves, only later
                        await self._wish(cluster)
                known = members
                await changed.wait()
        finally:
            stop()

    async def _wish(self, cluster: str) -> None:
        for machine in self.views.waiting_in(RUNTIME, cluster):
            await self.queue.wish(subjects.key(machine), Wish(reason=Reason.EVENT))
