"""Shoots that join because they have a ControlPlane, and when they are asleep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bus.clusters.registry import MachinePlace, Member
from bus.transport.connection import Bus
from bus.views import View
from windowbox.models.objects import Object
from windowbox.models.refs import (
    API_SERVER,
    CLUSTERS,
    CONTROL_PLANES,
    PLANE_DEPLOYMENTS,
    RUNTIME,
    ObjectRef,
    SecretKey,
)
from windowbox.settings.clustersettings import ACCESS_SECRET
from workers.core.lifecycle import shootfacts
from workers.core.lifecycle.shootfacts import ShootFacts

FINALIZER = "extensions.gardener.cloud/controlplane"


@dataclass(frozen=True)
class Replicas:
    """The replicas of a Shoot's API server."""

    wanted: int
    ready: int


def taking_part(controlplane: Object) -> bool:
    """Whether the Shoot of a ControlPlane is a member: while its access Secret exists."""
    ours = controlplane.spec.get("type") == "local" and FINALIZER in controlplane.finalizers
    return ours and "observedGeneration" in controlplane.status


def member(namespace: str, shoot: ShootFacts) -> Member:
    """The Shoot with its control plane in the namespace, reached by the ControlPlane's access Secret."""
    machines = MachinePlace(namespace=f"infra-{shoot.technical_id}")
    return Member(
        id=namespace,
        secret=SecretKey(namespace=namespace, name=ACCESS_SECRET),
        machines=machines if shoot.managed_infrastructure else None,
        origin="controlplane",
    )


def is_asleep(shoot: ShootFacts, server: Replicas | None, *, was_asleep: bool) -> bool:
    """Whether the API server of a Shoot is unreachable, because the Shoot is hibernated.

    A Shoot falls asleep when its API server has ended, not when hibernation is requested: its machines are
    deleted first. It is awake when the API server is ready. Without a Deployment, the Cluster decides.
    """
    if server is None:
        return shoot.hibernated or (was_asleep and shoot.hibernation_enabled)
    ended = shoot.hibernation_enabled and server.wanted == 0
    return ended or (was_asleep and server.ready == 0)


class ControlPlanes:
    """The Shoots with a ControlPlane, from the bus."""

    def __init__(self, bus: Bus, changed: Callable[[], None]) -> None:
        self._controlplanes: View[bool] = View(bus, CONTROL_PLANES.id, _taking_part, changed=changed)
        self._shoots: View[ShootFacts] = View(
            bus, CLUSTERS.id, lambda _, cluster: shootfacts.facts(cluster), changed=changed
        )
        self._servers: View[Replicas] = View(bus, PLANE_DEPLOYMENTS.id, _replicas, changed=changed)

    async def run(self) -> None:
        """Follow the bus, for ever."""
        await asyncio.gather(self._controlplanes.run(), self._shoots.run(), self._servers.run())

    async def complete(self) -> None:
        """Wait until all existing objects have been read."""
        for view in (self._controlplanes, self._shoots, self._servers):
            await view.complete.wait()

    @property
    def all_known(self) -> bool:
        """Whether nothing is missing on the bus."""
        return all(RUNTIME in view.listed for view in (self._controlplanes, self._shoots))

    @property
    def unknown(self) -> set[str]:
        """Shoots whose ControlPlane or Cluster is too large for the bus, by namespace."""
        planes = {ref.namespace for ref in self._controlplanes.omitted() if ref.cluster == RUNTIME}
        return planes | {ref.name for ref in self._shoots.omitted() if ref.cluster == RUNTIME}

    def members(self) -> dict[str, Member]:
        """The Shoots that are to be members, by namespace."""
        found = {}
        for ref, _ in self._controlplanes.items():
            shoot = self._shoots.get(ObjectRef(RUNTIME, CLUSTERS.id, "", ref.namespace))
            if shoot and shoot.technical_id:
                found[ref.namespace] = member(ref.namespace, shoot)
        return found

    def put_to_sleep(self, member: Member, before: Member | None) -> Member:
        """The same member, asleep if its Shoot is; `before` is its present registration.

        While something may be missing on the bus, or is too large for it, it sleeps as before.
        """
        was_asleep = before is not None and before.asleep
        # Where no ControlPlanes are watched, API servers need not be, either.
        servers = member.origin != "controlplane" or RUNTIME in self._servers.listed
        if not servers or RUNTIME not in self._shoots.listed or member.id in self.unknown:
            return member.model_copy(update={"asleep": was_asleep})
        shoot = self._shoots.get(ObjectRef(RUNTIME, CLUSTERS.id, "", member.id))
        if shoot is None:
            return member
        server = self._servers.get(ObjectRef(RUNTIME, PLANE_DEPLOYMENTS.id, member.id, API_SERVER))
        asleep = is_asleep(shoot, server, was_asleep=was_asleep)
        return member.model_copy(update={"asleep": asleep})


def _taking_part(ref: ObjectRef, controlplane: Object) -> bool | None:
    return True if ref.cluster == RUNTIME and taking_part(controlplane) else None


def _replicas(ref: ObjectRef, deployment: Object) -> Replicas | None:
    if ref.name != API_SERVER:
        return None
    wanted, ready = deployment.spec.get("replicas", 1), deployment.status.get("readyReplicas", 0)
    return Replicas(*(number if isinstance(number, int) else 0 for number in (wanted, ready)))
