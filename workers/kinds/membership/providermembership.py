"""Provider membership: a provider cluster joins while an object needs it and a Secret lets us watch it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bus.clusters import providers
from bus.clusters.providers import Providers
from bus.clusters.registry import Member, Registry
from bus.transport.connection import Bus
from bus.views import View
from windowbox.errors import TransientError, WindowboxError
from windowbox.kinds import KINDS
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, ObjectRef, SecretKey
from workers.kinds.membership.concurrentchecks import Checks

logger = logging.getLogger(__name__)

_WITH_CREDENTIALS = {(row.credentials_of or row.resource).id: row for row in KINDS if row.credentials}


def secret_of(ref: ObjectRef, object: Object) -> SecretKey | None:
    """The Secret with the kubeconfig of the cluster that the object's machines are in."""
    if ref.cluster != RUNTIME:
        return None  # watchers cannot read Secrets of other clusters
    row = _WITH_CREDENTIALS[ref.kind]
    if row.type and object.spec.get("type") != row.type:
        return None  # other programs serve it
    found: Any = {"name": row.credentials}
    if row.credentials_of:
        found = object.raw.get(row.credentials)
    elif row.credentials.startswith("spec."):
        found = object.spec.get(row.credentials.removeprefix("spec."))
    if not isinstance(found, Mapping) or not found.get("name"):
        return None
    return SecretKey(namespace=str(found.get("namespace") or ref.namespace), name=str(found["name"]))


@dataclass
class ProviderMembership:
    """Adds and removes provider clusters. Runs under the lease `providers`."""

    bus: Bus
    registry: Registry
    providers: Providers
    interval: float
    _views: list[View[SecretKey]] = field(default_factory=list)
    _clusters: dict[SecretKey, str | None] = field(default_factory=dict)
    """The cluster of each Secret at its last check."""
    _checks: Checks = field(default_factory=lambda: Checks())
    _unneeded: set[Member] = field(default_factory=set)
    """Members without a Secret at the last check. They leave at the next one: views may lag."""

    async def run(self) -> None:
        """Check in intervals, for ever: Secrets are not watched."""
        kinds = [row.credentials_of or row.resource for row in _WITH_CREDENTIALS.values()]
        self._views = [View(self.bus, kind.id, secret_of) for kind in kinds]
        async with asyncio.TaskGroup() as group:
            for view, kind in zip(self._views, kinds, strict=True):
                group.create_task(view.run(), name=f"providers: {kind.plural}")
            for view in self._views:
                await view.complete.wait()
            await self.registry.complete.wait()
            async with self._checks.running():
                while True:
                    await self._reconcile()
                    await asyncio.sleep(self.interval)

    async def _reconcile(self) -> None:
        needed: set[SecretKey] = {secret for view in self._views for _, secret in view.items()}
        self._clusters = {secret: found for secret, found in self._clusters.items() if secret in needed}
        for secret in needed - self._clusters.keys():
            self._checks.begin(secret, lambda secret=secret: self._resolve(secret))  # type: ignore[misc]
        await self._checks.settle()
        members = [m for m in self.registry.members.values() if m.origin == "provider"]
        for member in members:
            self._checks.begin(member, lambda member=member: self._check_member(member, needed))  # type: ignore[misc]
        await self._checks.settle()
        self._unneeded.intersection_update(members)
        for cluster in {found for found in self._clusters.values() if found} - self.registry.members.keys():
            self._checks.begin(cluster, lambda cluster=cluster: self._join(cluster))  # type: ignore[misc]
        await self._checks.settle()
        self._checks.forget_all_but({*needed, *members, *self._clusters.values()})

    async def _resolve(self, secret: SecretKey) -> None:
        """Remember the cluster of the Secret."""
        self._clusters[secret] = await self.providers.leads_to(secret)

    async def _join(self, cluster: str) -> None:
        if secret := await self._secret_for(cluster):
            await self._exchange(cluster, None, providers.member(cluster, secret))

    async def _is_watchable(self, secret: SecretKey, cluster: str) -> bool:
        """Whether the Secret reaches this cluster and permits watches; TransientError if that is unknown."""
        self._clusters[secret] = found = await self.providers.leads_to(secret, watched=True)
        return found == cluster

    async def _check_member(self, member: Member, needed: set[SecretKey]) -> None:
        assert member.secret
        if member.secret in needed and await self._is_watchable(member.secret, member.id):
            self._unneeded.discard(member)
            return
        if secret := await self._secret_for(member.id):
            self._unneeded.discard(member)
            await self._exchange(member.id, member, providers.member(member.id, secret))
        elif member not in self._unneeded:
            self._unneeded.add(member)
        elif all(RUNTIME in view.listed for view in self._views):
            self._unneeded.discard(member)
            await self._exchange(member.id, member, None)

    async def _secret_for(self, cluster: str) -> SecretKey | None:
        """A Secret that reaches the cluster now. Those that did before are tried first."""
        for secret in sorted(self._clusters, key=lambda one: (self._clusters[one] != cluster, str(one))):
            known = self._clusters.get(secret)
            with contextlib.suppress(TransientError):  # another one may reach it, too
                if known in (None, cluster) and await self._is_watchable(secret, cluster):
                    return secret
        return None

    async def _exchange(self, cluster: str, before: Member | None, after: Member | None) -> None:
        try:
            await self.registry.exchange(cluster, before, after)
        except WindowboxError as error:
            logger.info("provider cluster %s: %s", cluster, error)
            return
        how = "leaves" if after is None else "is reached by another Secret" if before else "takes part"
        logger.info("provider cluster %s %s", cluster, how)
