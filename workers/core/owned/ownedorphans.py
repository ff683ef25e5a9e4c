"""Orphans in provider clusters: removes objects that bear our mark and whose owner is gone.

Runs clean up after their objects. This finds what they miss: the bus was lost together with the only record
of an object that had vanished, or somebody removed its finalizer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from bus.clusters.clusters import Clusters
from bus.leases import guard
from bus.transport.connection import Bus
from bus.views import View
from windowbox.clients.kubernetes import identities
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, WindowboxError
from windowbox.kinds import RESOURCES
from windowbox.models.objects import Object
from windowbox.models.refs import BASTIONS, NAMESPACES, PODS, SECRETS, ObjectRef, Resource, SecretKey
from windowbox.telemetry import metrics
from workers.core.owned import marks, ownerindex
from workers.core.owned.marks import Mark
from workers.core.owned.targets import TargetClusters

logger = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds for the removals in one cluster in one check, so that one cluster does not delay the others."""
_AT_ONCE = 100
"""Objects of one cluster that one check removes; the next check continues."""


class Owned(NamedTuple):
    """An object that bears a mark."""

    uid: str
    mark: Mark


Orphan = tuple[ObjectRef, Owned]


class Attempts:
    """When each orphan is due: after a grace, and after a failed attempt once a backoff is over."""

    def __init__(self, grace: float, backoff: float, patience: float = _PATIENCE) -> None:
        self._grace = grace
        self._backoff = backoff
        self._patience = patience
        self._due_at: dict[Orphan, float] = {}

    def forget(self) -> None:
        self._due_at = {}

    async def make(self, orphans: Iterable[Orphan], remove: Callable[[Orphan], Awaitable[None]]) -> None:
        """Remove the orphans that are due, one task per cluster, and forget those not passed any more."""
        grace_over = time.monotonic() + self._grace
        self._due_at = {one: self._due_at.get(one, grace_over) for one in orphans}
        now = time.monotonic()
        by_cluster: dict[str, list[Orphan]] = defaultdict(list)
        for one in sorted(self._due_at, key=self._due_at.__getitem__):  # the longest wait first
            if self._due_at[one] <= now:
                by_cluster[one[0].cluster].append(one)
        await asyncio.gather(*(self._in_cluster(some, remove) for some in by_cluster.values()))

    async def _in_cluster(self, orphans: list[Orphan], remove: Callable[[Orphan], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self._patience):
                for one in orphans[:_AT_ONCE]:
                    self._due_at[one] = time.monotonic() + self._backoff
                    with guard.isolated("orphans", one[0]):
                        await remove(one)
        except TimeoutError:
            logger.info("orphans in %s: too slow; the rest follows later", orphans[0][0].cluster)


_INTERVAL = 10.0
_GRACE = 10.0
"""Seconds before an orphan is removed: a run for its former owner may be about to remove it."""
_BACKOFF = 300.0
"""Seconds until the next attempt for an object that could not be removed, or has to stay."""
_SECRETS = 4
"""Secrets tried per orphan."""
_SECRET_PATIENCE = 5.0
"""Seconds for each Secret."""


class OwnedOrphans:
    """Finds orphans in all watched clusters. Before a removal, the API confirms what the bus shows."""

    def __init__(
        self,
        bus: Bus,
        clusters: Clusters,
        targets: TargetClusters,
        *,
        interval: float = _INTERVAL,
        grace: float = _GRACE,
        backoff: float = _BACKOFF,
    ) -> None:
        made = sorted(set().union(*marks.OWNERS.values()))
        self._owners: dict[str, View[str]] = {
            kind: View(bus, kind, lambda _, owner: owner.uid) for kind in marks.OWNERS
        }
        self._made: list[View[Owned]] = [View(bus, kind, _owned) for kind in made]
        self._clusters = clusters
        self._targets = targets
        self._interval = interval
        self._attempts = Attempts(grace, backoff)
        self._secrets: dict[tuple[str, str], list[SecretKey]] = {}
        """By the cluster of the objects and that of their owners."""

    async def run(self) -> None:
        """Check for ever. For the holder of a lease."""
        self._attempts.forget()
        views: list[View[Any]] = [*self._owners.values(), *self._made]
        async with asyncio.TaskGroup() as group:
            for view in views:
                group.create_task(view.run())
            for view in views:
                await view.complete.wait()
            await guard.kept("orphans", self._check_again)

    async def _check_again(self) -> None:
        while True:
            try:
                ours = await self._targets.installation()
                made = (one for view in self._made for one in view.items())
                found = [one for one in made if self._unwanted(*one, ours)]
                self._secrets = self._known_secrets() if found else {}
                await self._attempts.make(found, self._remove)
            except WindowboxError as error:
                logger.info("orphans in provider clusters are looked for later: %s", error)
            await asyncio.sleep(self._interval)

    def _unwanted(self, ref: ObjectRef, owned: Owned, installation: str) -> bool:
        """Whether the bus knows no owner. A new owner of the same name adopts or removes the object."""
        mark = owned.mark
        with guard.isolated("orphans", ref):
            owners = self._owners[mark.owner.kind]
            return (
                mark.installation == installation
                and mark.owner.cluster in owners.listed
                and owners.get(mark.owner) is None
                and mark.owner not in owners.omitted()
            )
        return False

    async def _remove(self, orphan: Orphan) -> None:
        ref, owned = orphan
        owner = owned.mark.owner
        try:
            home = await self._clusters.get(owner.cluster)
            if await home.find(RESOURCES[owner.kind], owner.namespace, owner.name) is not None:
                return
            if await identities.own_uid(home) != owned.mark.home:
                logger.info("%s was made for %s of another cluster, which had this id before", ref, owner)
                return
            async with contextlib.AsyncExitStack() as stack:
                await _remove(await self._reached(stack, ref, owned.mark), ref, owned)
        except WindowboxError as error:
            logger.info("%s has no owner, and cannot be removed: %s", ref, error)

    async def _reached(self, stack: contextlib.AsyncExitStack, ref: ObjectRef, mark: Mark) -> Kube:
        """The cluster of `ref`, with the credentials of a Secret, as runs for the owner use."""
        known = self._secrets.get((ref.cluster, mark.owner.cluster), ())
        for secret in itertools.islice(dict.fromkeys((mark.secret, *known)), _SECRETS):
            opened = self._targets.providers.opened(
                mark.owner.cluster, secret.namespace, secret.name, watched=False
            )
            try:
                async with asyncio.timeout(_SECRET_PATIENCE):
                    provider = await stack.enter_async_context(opened)
            except (WindowboxError, TimeoutError) as error:
                # Most likely the Secret was deleted with its Shoot, or its cluster is unreachable.
                logger.debug("%s: Secret %s/%s: %s", ref, secret.namespace, secret.name, error)
                continue
            if provider.cluster == ref.cluster:
                return provider.kube
        return await self._clusters.get(ref.cluster)

    def _known_secrets(self) -> dict[tuple[str, str], list[SecretKey]]:
        """Secrets that may reach each cluster: those with which objects there were created."""
        found: dict[tuple[str, str], list[SecretKey]] = {}
        for view in self._made:
            for ref, owned in view.items():
                some = found.setdefault((ref.cluster, owned.mark.owner.cluster), [])
                if len(some) < _SECRETS and owned.mark.secret not in some:
                    some.append(owned.mark.secret)
        return found


def _owned(ref: ObjectRef, object: Object) -> Owned | None:
    """The mark of an object; None for kinds that its marked owner does not create."""
    mark = marks.parsed(object)
    if mark is None or object.deleting or ref.kind not in marks.OWNERS[mark.owner.kind]:
        return None
    home = ref.name if ref.kind == NAMESPACES.id else ref.namespace
    return Owned(object.uid, mark) if home.startswith(ownerindex.INFRASTRUCTURE) else None


async def _remove(kube: Kube, ref: ObjectRef, owned: Owned) -> None:
    """Remove the object, if the API has the version that the bus shows."""
    owner, resource = owned.mark.owner, RESOURCES[ref.kind]
    # Listed, not read: in provider clusters we may only list most kinds.
    listed = kube.objects(resource._replace(within=ref.namespace, named=ref.name))
    found = await anext(aiter(listed), None)
    if found is None or _owned(ref, found) != owned:
        return
    pods = PODS._replace(selector="", within=ref.name)
    # Machines keep running while their Shoot is migrated.
    if resource == NAMESPACES and (await kube.page(pods, metadata_only=True)).items:
        logger.info("%s was made for %s, which is gone; it stays, because Pods use it", ref, owner)
        return
    if owner.kind == BASTIONS.id:
        # A Bastion's Secret has the name of its Pod. Secrets are not watched.
        secret = await kube.find(SECRETS, ref.namespace, ref.name)
        if secret and marks.parsed(secret) == owned.mark:
            await _removed(kube, SECRETS, secret)
    if await _removed(kube, resource, found):
        metrics.orphans.labels(owner.kind.partition(".")[0]).inc()
        logger.warning("%s was made for %s, which is gone: removed", ref, owner)


async def _removed(kube: Kube, resource: Resource, found: Object) -> bool:
    """Delete exactly this version: a new owner writes its own mark. False if it has changed."""
    uid, version = found.uid, found.resource_version
    try:
        return await kube.remove(resource, found.namespace, found.name, uid=uid, version=version)
    except Conflict:
        return False
