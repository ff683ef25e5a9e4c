"""Cluster membership: clusters join and leave by annotations of Namespaces and by ControlPlanes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bus.clusters.registry import Member, Registry
from bus.outcomes import backoff
from bus.transport.connection import Bus
from bus.views import View
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, RUNTIME, ObjectRef
from windowbox.settings.clustersettings import JoinSettings
from windowbox.settings.lbsettings import matches
from workers.core import joinannotations
from workers.core.joinannotations import Unusable
from workers.kinds.membership.shootmembership import ControlPlanes

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
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _warned: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry.on_change(self._changed.set)

    async def run(self) -> None:
        """Let clusters join and leave until cancelled."""
        view: View[Member | Unusable] = View(
            self.bus, NAMESPACES.id, self._requested, changed=self._changed.set
        )
        controlplanes = ControlPlanes(self.bus, self._changed.set)
        async with asyncio.TaskGroup() as group:
            group.create_task(view.run(), name="joining: namespaces")
            group.create_task(controlplanes.run(), name="joining: control planes")
            await view.complete.wait()
            await controlplanes.complete()
            await self.registry.complete.wait()
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
        wanted = {name: controlplanes.put_to_sleep(one, members.get(name)) for name, one in wanted.items()}
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
