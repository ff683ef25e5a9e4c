"""Cluster membership: clusters join and leave by annotations of Namespaces and by ControlPlanes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bus.clusters.registry import MachinePlace, Member, Registry
from bus.leases import guard
from bus.outcomes import backoff
from bus.transport.connection import Bus
from bus.views import View
from windowbox.errors import WindowboxError
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.objects import Object
from windowbox.models.refs import (
    API_SERVER,
    CLUSTERS,
    CONTROL_PLANES,
    NAMESPACES,
    PLANE_DEPLOYMENTS,
    RUNTIME,
    ObjectRef,
    SecretKey,
)
from windowbox.settings.clustersettings import ACCESS_SECRET, JoinSettings
from windowbox.settings.lbsettings import matches
from workers.core import joinannotations
from workers.core.joinannotations import Unusable
from workers.core.lifecycle import shootfacts
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.kinds.membership.cloudof import cloud_of

logger = logging.getLogger(__name__)

_OURS = ("namespace", "controlplane")
"""Origins of the members that this module adds and removes."""


@dataclass(frozen=True)
class Change:
    """A cluster that joins (`before` is None), is reached otherwise, or leaves (`after` is None)."""

    cluster: str
    before: Member | None
    after: Member | None


def changes(
    wanted: Mapping[str, Member],
    found: Mapping[str, Member],
    *,
    all_known: Collection[str],
    left_alone: Collection[str] = (),
) -> list[Change]:
    """The changes from `found` to `wanted`. Members leave only if their origin is completely known.

    Clusters that are `left_alone` neither join nor leave.
    """
    ours = {cluster for cluster, member in found.items() if member.origin in _OURS}
    kept = [
        Change(cluster, found.get(cluster), member)
        for cluster, member in sorted(wanted.items())
        if (cluster in ours or cluster not in found) and found.get(cluster) != member
    ]
    leaving = [
        Change(cluster, found[cluster], None)
        for cluster in sorted(ours - wanted.keys())
        if found[cluster].origin in all_known
    ]
    return [change for change in kept + leaving if change.cluster not in left_alone]


def undecided(
    members: Mapping[str, Member], marked: Collection[str], unknown: Mapping[str, Collection[str]]
) -> set[str]:
    """Members that cannot be judged: the bus does not hold the objects by which they joined.

    `unknown` are the clusters of which it does not hold that, by origin.
    """
    found = members.items()
    return {name for name, one in found if name not in marked and name in unknown.get(one.origin, ())}


@dataclass
class Joining:
    """Follows the Namespaces. For the holder of the lease `join`."""

    bus: Bus
    registry: Registry
    settings: JoinSettings
    direct: Collection[str] = ()
    """Clusters (ids or patterns) whose Pods can be reached."""
    with_controlplanes: bool = True
    """Whether Shoots with a ControlPlane join without an annotation of their Namespace."""
    clouds: Collection[str] = ()
    """Types of providers that are served besides `local`."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _warned: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry.on_change(self._changed.set)

    async def run(self) -> None:
        """Let clusters join and leave until cancelled."""
        view: View[Member | Unusable] = View(
            self.bus, NAMESPACES.id, self._requested, changed=self._changed.set
        )
        controlplanes = ControlPlanes(self.bus, self._changed.set, self.clouds)
        async with asyncio.TaskGroup() as group:
            group.create_task(view.run(), name="joining: namespaces")
            group.create_task(controlplanes.run(), name="joining: control planes")
            await view.complete.wait()
            await controlplanes.complete()
            await self.registry.complete.wait()
            await guard.kept("join", lambda: self._reconcile_again(view, controlplanes))

    async def _reconcile_again(self, view: View[Member | Unusable], controlplanes: ControlPlanes) -> None:
        failures = 0
        while True:
            self._changed.clear()
            try:
                await self._reconcile(view, controlplanes)
                failures = 0
            except WindowboxError as error:
                failures += 1
                pause = backoff(failures, first=0.2, longest=10)
                logger.info("joining: %s; again in %.1f s", error, pause)
                asyncio.get_running_loop().call_later(pause, self._changed.set)
            await self._changed.wait()

    async def _reconcile(self, view: View[Member | Unusable], controlplanes: ControlPlanes) -> None:
        found = {ref.name: requested for ref, requested in view.items()}
        # Log each invalid annotation once.
        wrong = {name: requested.why for name, requested in found.items() if isinstance(requested, Unusable)}
        for name, member in found.items():
            taken = self.registry.members.get(name)
            if isinstance(member, Member) and taken and taken.origin == "person":
                wrong[name] = "a person has let a cluster of this name join: that is left as it is"
        for name, why in wrong.items():
            if self._warned.get(name) != why:
                logger.warning("namespace %s: %s", name, why)
        self._warned = wrong
        marked = {name: requested for name, requested in found.items() if isinstance(requested, Member)}
        planes = controlplanes.members() if self.with_controlplanes else {}
        wanted = {name: self._with_kinds(member) for name, member in planes.items()} | marked
        members = self.registry.members
        wanted = {name: controlplanes.as_its_shoot(one, members.get(name)) for name, one in wanted.items()}
        # An invalid annotation is no reason to leave: a person is about to correct it.
        unusable = {name for name, requested in found.items() if isinstance(requested, Unusable)}
        listed = {"namespace": RUNTIME in view.listed, "controlplane": controlplanes.all_known}
        all_known = [origin for origin in _OURS if listed[origin]]
        unknown = {
            "namespace": {ref.name for ref in view.omitted() if ref.cluster == RUNTIME},
            "controlplane": controlplanes.unknown,
        }
        left_alone = unusable | undecided(members, marked, unknown)
        failed: list[WindowboxError] = []
        for change in changes(wanted, members, all_known=all_known, left_alone=left_alone):
            try:
                with guard.isolated("join", change.cluster):
                    await self.registry.exchange(change.cluster, change.before, change.after)
                    logger.info("cluster %s %s", change.cluster, _described(change))
            except WindowboxError as error:
                failed.append(error)  # it must not block the other clusters
        if failed:
            raise failed[0]

    def _requested(self, ref: ObjectRef, namespace: Object) -> Member | Unusable | None:
        if ref.cluster != RUNTIME:
            return None
        requested = joinannotations.requested_member(namespace, self.settings.secret)
        return self._with_kinds(requested) if isinstance(requested, Member) else requested

    def _with_kinds(self, member: Member) -> Member:
        return joinannotations.with_kinds(member, direct=matches(member.id, self.direct))


def _described(change: Change) -> str:
    if change.before is None:
        return "joins"
    if change.after is None:
        return "leaves"
    if change.after.asleep != change.before.asleep:
        return "falls asleep" if change.after.asleep else "wakes up"
    return "is reached in another way"


FINALIZER = "extensions.gardener.cloud/controlplane"


@dataclass(frozen=True)
class Replicas:
    """The replicas of a Shoot's API server."""

    wanted: int
    ready: int


def taking_part(controlplane: Object, clouds: Collection[str] = ()) -> bool:
    """Whether the Shoot of a ControlPlane is a member: while its access Secret exists."""
    ours = controlplane.spec.get("type") in ("local", *clouds) and FINALIZER in controlplane.finalizers
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


class Shoot(NamedTuple):
    """The Shoot of a Cluster, as far as its membership depends on it."""

    facts: ShootFacts
    cloud: CloudFacts | None


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

    def __init__(self, bus: Bus, changed: Callable[[], None], clouds: Collection[str] = ()) -> None:
        def ours(ref: ObjectRef, controlplane: Object) -> bool | None:
            return True if ref.cluster == RUNTIME and taking_part(controlplane, clouds) else None

        def shoot(_: ObjectRef, cluster: Object) -> Shoot:
            facts = shootfacts.facts(cluster)
            return Shoot(facts, cloud_of(cluster, facts, clouds))

        self._controlplanes: View[bool] = View(bus, CONTROL_PLANES.id, ours, changed=changed)
        self._shoots: View[Shoot] = View(bus, CLUSTERS.id, shoot, changed=changed)
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
            if shoot and shoot.facts.technical_id:
                found[ref.namespace] = member(ref.namespace, shoot.facts)
        return found

    def as_its_shoot(self, member: Member, before: Member | None) -> Member:
        """The same member, asleep if its Shoot is, and in its cloud; `before` is its present registration.

        While something may be missing on the bus, or is too large for it, both stay as before.
        """
        was_asleep = before is not None and before.asleep
        # Where no ControlPlanes are watched, API servers need not be, either.
        servers = member.origin != "controlplane" or RUNTIME in self._servers.listed
        if not servers or RUNTIME not in self._shoots.listed or member.id in self.unknown:
            return member.model_copy(update={"asleep": was_asleep, "cloud": before.cloud if before else None})
        shoot = self._shoots.get(ObjectRef(RUNTIME, CLUSTERS.id, "", member.id))
        if shoot is None:
            return member
        server = self._servers.get(ObjectRef(RUNTIME, PLANE_DEPLOYMENTS.id, member.id, API_SERVER))
        asleep = is_asleep(shoot.facts, server, was_asleep=was_asleep)
        return member.model_copy(update={"asleep": asleep, "cloud": shoot.cloud})


def _replicas(ref: ObjectRef, deployment: Object) -> Replicas | None:
    if ref.name != API_SERVER:
        return None
    wanted, ready = deployment.spec.get("replicas", 1), deployment.status.get("readyReplicas", 0)
    return Replicas(*(number if isinstance(number, int) else 0 for number in (wanted, ready)))
