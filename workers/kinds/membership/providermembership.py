"""Provider membership: a provider cluster joins while an object needs it and a Secret lets us watch it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bus.clusters import providers
from bus.clusters.providers import Providers
from bus.clusters.registry import Member, Registry
from bus.leases import guard
from bus.outcomes import backoff
from bus.transport.connection import Bus
from bus.views import View
from windowbox.errors import TransientError, WindowboxError
from windowbox.kinds import KINDS
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, ObjectRef, SecretKey

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
        if object.raw.get("provider") != "local":
            return None  # the Secret has credentials of a cloud
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
    always: frozenset[SecretKey] = frozenset()
    """Secrets that no object names: that of clouds."""
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
                await guard.kept("providers", self._reconcile_again)

    async def _reconcile_again(self) -> None:
        while True:
            await self._reconcile()
            await asyncio.sleep(self.interval)

    async def _reconcile(self) -> None:
        needed: set[SecretKey] = {secret for view in self._views for _, secret in view.items()}
        needed |= self.always
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
        how = "leaves" if after is None else "is reached by another Secret" if before else "joins"
        logger.info("provider cluster %s %s", cluster, how)


_AT_ONCE = 128
_SUSPECTS_AT_ONCE = 16
"""Of those that failed the last time: a hundred dead clusters delay only one another."""
_PATIENCE = 5.0
"""Seconds to wait for all: a cluster that does not answer is given up after 15."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0


class Checks:
    """Runs each check once at a time, by its key, with backoff after failures."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup
        self._running: dict[Hashable, asyncio.Task[None]] = {}
        self._failures: dict[Hashable, int] = {}
        self._not_before: dict[Hashable, float] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._slots_of_suspects = asyncio.Semaphore(_SUSPECTS_AT_ONCE)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Checks can be begun as long as this lasts."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            yield
            for task in self._running.values():
                task.cancel()

    def begin(self, key: Hashable, act: Callable[[], Awaitable[None]]) -> None:
        """Start the check, unless it is running or in backoff."""
        if key in self._running or self._not_before.get(key, 0.0) > asyncio.get_running_loop().time():
            return
        task = self._group.create_task(self._check(key, act), name=f"check {key}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key))

    async def settle(self) -> None:
        """Wait for the started checks that did not fail before, at most five seconds."""
        waited_for = [task for key, task in self._running.items() if key not in self._failures]
        if waited_for:
            await asyncio.wait(waited_for, timeout=_PATIENCE)

    def forget_all_but(self, keys: Collection[Hashable]) -> None:
        """Drop the backoff of all other keys."""
        for key in self._failures.keys() - keys:
            del self._failures[key]
            self._not_before.pop(key, None)

    async def _check(self, key: Hashable, act: Callable[[], Awaitable[None]]) -> None:
        async with self._slots_of_suspects if key in self._failures else self._slots:
            try:
                await act()
            except Exception as error:  # of the cluster, or a bug that it triggers
                if not isinstance(error, WindowboxError):
                    guard.note("providers", error, f"{key} is checked later")
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                pause = backoff(failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
                self._not_before[key] = asyncio.get_running_loop().time() + pause
                logger.info("provider clusters: %s; again in %.0f s", error, pause)
            else:
                self._failures.pop(key, None)
                self._not_before.pop(key, None)
