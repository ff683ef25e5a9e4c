"""Puts the machines of a former seed back, so that their nodes stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from windowbox.errors import Waiting
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, Resource
from workers.core.owned.manifests import Manifest
from workers.core.owned.targets import TargetCluster, in_batches
from workers.machines.worker import states
from workers.machines.worker.observed import Observed
from workers.machines.worker.states import DeploymentState
from workers.machines.worker.wanted import Group

_REQUEUE_AFTER = 1.0


@dataclass(frozen=True)
class Restoration:
    """What has to be there before a MachineDeployment is made: else it would have new machines made."""

    states: Mapping[str, DeploymentState]
    namespace: str

    @classmethod
    def of(cls, worker: Object, wanted: Collection[str]) -> Self:
        found = states.decoded(worker)
        return cls({name: one for name, one in found.items() if name in wanted}, worker.namespace)

    def replicas(self, group: Group) -> int:
        """How many machines a MachineDeployment is made with."""
        state = self.states.get(group.name)
        return state.replicas if state else group.minimum

    async def create(self, target: TargetCluster, before: Observed) -> None:
        """Create the objects whose MachineDeployment is not there yet.

        Machines before their sets, and each only after the bus knows the former: whoever hears of a set has
        heard of its machines, and makes no others. Once a MachineDeployment is there, nothing is created
        again: what is missing then has been removed since.
        """
        missing = [
            state
            for name, state in self.states.items()
            if name not in before.deployments
            and await target.live(MACHINE_DEPLOYMENTS, self.namespace, name) is None
        ]
        for resource, parts in (
            (MACHINES, [part for one in missing for part in one.machines]),
            (MACHINE_SETS, [part for one in missing for part in one.sets]),
        ):
            await self._create(target, resource, parts)

    async def _create(self, target: TargetCluster, resource: Resource, parts: list[Manifest]) -> None:
        names = [part["metadata"]["name"] for part in parts]
        known = {name: await target.cached(resource, self.namespace, name) for name in names}
        unknown = [part for part in parts if known[part["metadata"]["name"]] is None]
        await in_batches(target.create_if_absent(resource, part) for part in unknown)
        if unknown:
            what = f"{len(unknown)} of {len(parts)} objects of kind {resource.kind}"
            raise Waiting(f"waiting until {what} are restored", retry_after=_REQUEUE_AFTER)
