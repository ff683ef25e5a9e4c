"""Brings about that just those clusters take part whose Namespaces say so, and those a person has added."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bus.connection import Bus
from bus.pool import backoff
from bus.registry import Member, Registry
from bus.views import View
from windowbox.errors import WindowboxError
from windowbox.models.joinsettings import JoinSettings
from windowbox.models.lbsettings import matches
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, RUNTIME, ObjectRef
from workers.membership import joinannotations
from workers.membership.joinannotations import Unusable

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """A cluster that joins (`before` is None), is reached otherwise, or leaves (`after` is None)."""

    cluster: str
    before: Member | None
    after: Member | None


def changes(wanted: Mapping[str, Member], found: Mapping[str, Member], *, all_known: bool) -> list[Change]:
    """What makes `found` what is `wanted`. Unless all that is wanted is known, none has to leave."""
    ours = {cluster for cluster, member in found.items() if member.origin == "namespace"}
    kept = [
        Change(cluster, found.get(cluster), member)
        for cluster, member in sorted(wanted.items())
        if (cluster in ours or cluster not in found) and found.get(cluster) != member
    ]
    return kept + [
        Change(cluster, found[cluster], None) for cluster in sorted(ours - wanted.keys()) if all_known
    ]


@dataclass
class Joining:
    """Follows the Namespaces. For the holder of the lease `join`."""

    bus: Bus
    registry: Registry
    settings: JoinSettings
    direct: Collection[str] = ()
    """Clusters (ids or patterns) whose Pods can be reached."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _warned: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry.on_change(self._changed.set)

    async def run(self) -> None:
        """Let clusters join and leave until cancelled."""
        view: View[Member | Unusable] = View(
            self.bus, NAMESPACES.id, self._requested, changed=self._changed.set
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(view.run(), name="joining: namespaces")
            await view.complete.wait()
            await self.registry.complete.wait()
            await self._follow(view)

    async def _follow(self, view: View[Member | Unusable]) -> None:
        failures = 0
        while True:
            self._changed.clear()
            try:
                await self._reconcile(view)
                failures = 0
            except WindowboxError as error:
                failures += 1
                pause = backoff(failures, first=0.2, longest=10)
                logger.info("joining: %s; again in %.1f s", error, pause)
                asyncio.get_running_loop().call_later(pause, self._changed.set)
            await self._changed.wait()

    async def _reconcile(self, view: View[Member | Unusable]) -> None:
        found = {ref.name: requested for ref, requested in view.items()}
        self._warn(found)
        wanted = {name: requested for name, requested in found.items() if isinstance(requested, Member)}
        # Marks that cannot be followed are no reason to leave: somebody is about to correct them.
        known = {c: m for c, m in self.registry.members.items() if not isinstance(found.get(c), Unusable)}
        failed: list[WindowboxError] = []
        for change in changes(wanted, known, all_known=RUNTIME in view.listed):
            try:
                await self.registry.exchange(change.cluster, change.before, change.after)
                logger.info("cluster %s %s", change.cluster, _described(change))
            except WindowboxError as error:
                failed.append(error)  # the other clusters must not suffer from it
        if failed:
            raise failed[0]

    def _warn(self, found: Mapping[str, Member | Unusable]) -> None:
        """Say what is wrong with marks, once."""
        wrong = {name: requested.why for name, requested in found.items() if isinstance(requested, Unusable)}
        for name, member in found.items():
            taken = self.registry.members.get(name)
            if isinstance(member, Member) and taken and taken.origin == "person":
                wrong[name] = "a person has let a cluster of this name join: that is left as it is"
        for name, why in wrong.items():
            if self._warned.get(name) != why:
                logger.warning("namespace %s: %s", name, why)
        self._warned = wrong

    def _requested(self, ref: ObjectRef, namespace: Object) -> Member | Unusable | None:
        if ref.cluster != RUNTIME:
            return None
        requested = joinannotations.requested_member(namespace, self.settings.secret)
        if isinstance(requested, Member):
            return joinannotations.with_kinds(requested, direct=matches(requested.id, self.direct))
        return requested


def _described(change: Change) -> str:
    if change.before is None:
        return "joins"
    return "is reached in another way" if change.after else "leaves"
