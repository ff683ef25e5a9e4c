"""The Pod of a Machine: as the bus knows it, and whether it is lost for good."""

from __future__ import annotations

from dataclasses import dataclass

from windowbox.errors import PermanentError, TransientError, Waiting
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, PODS
from workers.core.owned.targets import TargetClusters
from workers.machines.machine import names, reasons
from workers.machines.machine.creation import Creation
from workers.machines.machine.orphans import pods_of
from workers.machines.machine.providerclusters import ProviderClusters
from workers.machines.machine.reasons import Reason
from workers.machines.machine.run import MachineRun
from workers.machines.machine.views import MachineViews


@dataclass(frozen=True)
class MachinePods:
    targets: TargetClusters
    views: MachineViews
    creation: Creation
    providers: ProviderClusters

    async def seen(self, run: MachineRun) -> Object | None:
        """The Machine's Pod on the bus. Pods of other clusters may have its labels."""
        pods: dict[str, Object] = {}
        for ref, pod in await pods_of(self.views, run.ref, run.recorder):
            pods.setdefault(ref.cluster, pod)
        if not pods:
            return None
        try:
            _, credentials = await self.creation.place(run)
            return pods.get(await self.providers.of(run, credentials))
        except (TransientError, PermanentError, Waiting):
            return next(iter(pods.values()))  # its node may join while the provider cluster is unreachable

    async def loss(self, run: MachineRun) -> Reason | None:
        """Why the Pod of a machine that had joined never runs again; None if it may, or that is not known."""
        seen = await self.seen(run)
        if seen is not None and not reasons.has_ended(seen):
            return None
        try:
            namespace, credentials = await self.creation.place(run)
            async with self.targets.provider(run.run, *credentials) as provider:
                pod = await provider.live(PODS, namespace, names.pod(run.ref.name))
                if pod is not None:
                    return reasons.loss(pod)
                # A mistaken kubeconfig must cost no machines: another cluster lacks the namespace, too.
                home = await provider.live(NAMESPACES, "", namespace)
        except (TransientError, PermanentError, Waiting):
            return None
        return None if home is None or home.deleting else reasons.gone(namespace, names.pod(run.ref.name))
