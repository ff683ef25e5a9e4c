"""Clients of provider clusters: opened once per kubeconfig, closed when unused."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from bus.clusters.clusters import Clusters
from bus.clusters.registry import Member, Registry
from windowbox.clients.kubernetes import identities, kube, kubeconfigs
from windowbox.clients.kubernetes.apiresponses import UNAUTHENTICATED
from windowbox.clients.kubernetes.bulkhead import Bulkhead
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed, Missing, PermanentError, Unreachable, WindowboxError
from windowbox.kinds import PROVIDER_KINDS
from windowbox.models.refs import RUNTIME, SECRETS, ObjectRef, SecretKey

logger = logging.getLogger(__name__)

_IDLE_SECONDS = 300.0
_MOST_IDLE = 64
_COULD_NOT = "could not create client for infrastructure resources"


class Provider(NamedTuple):
    """A provider cluster: its id on the bus, and its client."""

    cluster: str
    kube: Kube


class _Key(NamedTuple):
    """The cluster of the Secret, and the kubeconfig in it."""

    cluster: str
    digest: str


@dataclass
class _Shared:
    """One client for all Secrets with the same kubeconfig."""

    users: int = 0
    kube: Kube | None = None
    own: bool = False
    """It leads to the cluster that the Secrets are in."""
    considered: bool = False
    """The check of access for watchers has begun."""
    host: str | None = None
    """The host of the kubeconfig, once it is known."""
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    failure: Unreachable | None = None
    """Why the last attempt to open it failed."""
    closing: asyncio.TimerHandle | None = None


@dataclass
class Providers:
    """Clients by the content of kubeconfigs. Each run reads its Secret, so a renewed one takes effect."""

    clusters: Clusters
    registry: Registry
    slots: int = 16
    """The number of concurrent runs of each pool."""
    _shared: dict[_Key, _Shared] = field(default_factory=dict)
    """Used clients first, then unused ones, the longest unused first."""
    _asking: set[asyncio.Task[None]] = field(default_factory=set)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._bulkhead = Bulkhead(self.slots)

    @contextlib.asynccontextmanager
    async def opened(
        self, cluster: str, namespace: str, name: str, *, run: ObjectRef | None = None, watched: bool = True
    ) -> AsyncIterator[Provider]:
        """The cluster that the Secret of `cluster` leads to; open at least until the block ends.

        A run needs a slot of that cluster: without one, Waiting, and TimeoutError if it takes too long. With
        `watched`, the cluster becomes a member.
        """
        secret = SecretKey(namespace=namespace, name=name)
        async with self._reached(cluster, secret, run) as (provider, shared):
            if watched and shared and not shared.own and not shared.considered:
                shared.considered = True
                if cluster == RUNTIME and provider.cluster not in self.registry.members:
                    # In a task beside the run: with a slow cluster it takes minutes.
                    asking = self._register(secret, provider.cluster)
                    self._begin(asking, "register a provider cluster", self._asking)
            yield provider

    async def leads_to(self, secret: SecretKey, *, watched: bool = False) -> str | None:
        """The id of the provider cluster that this Secret of the runtime cluster leads to now.

        None if it leads to no cluster or to the runtime cluster, and with `watched` also if we lack the right
        to watch. TransientError if this is unknown at the moment.
        """
        try:
            async with self._reached(RUNTIME, secret) as (provider, shared):
                if shared is None or shared.own:
                    return None
                if watched:  # all kinds at once: with a slow cluster, as long as the slowest answer takes
                    pages = (provider.kube.page(resource, limit=1) for resource in PROVIDER_KINDS)
                    for found in await asyncio.gather(*pages, return_exceptions=True):
                        # Not every cluster has every kind.
                        if isinstance(found, BaseException) and not isinstance(found, Missing):
                            raise found
                return provider.cluster
        except PermanentError as error:
            logger.debug("%s", error)
            return None

    async def aclose(self) -> None:
        """Close all of them."""
        for task in self._asking:
            task.cancel()
        while self._shared:  # runs that end meanwhile may still enter and leave
            _, shared = self._shared.popitem()
            if shared.closing:
                shared.closing.cancel()
            await shared.stack.aclose()
        if left := self._asking | self._ending:
            await asyncio.wait(left)

    @contextlib.asynccontextmanager
    async def _reached(
        self, cluster: str, secret: SecretKey, run: ObjectRef | None = None
    ) -> AsyncIterator[tuple[Provider, _Shared | None]]:
        kubeconfig = await self._kubeconfig(cluster, secret)
        if not kubeconfig:
            yield Provider(cluster, await self.clusters.get(cluster)), None
            return
        key = _Key(cluster, hashlib.sha256(kubeconfig).hexdigest())
        shared = self._shared.setdefault(key, _Shared())
        shared.users += 1
        if shared.closing:
            shared.closing.cancel()
            shared.closing = None
        try:
            if shared.host is None:
                shared.host = await asyncio.to_thread(kubeconfigs.host, kubeconfig)
            # A run takes a slot of the host. Without a host no request will be sent.
            async with (
                self._bulkhead.turn(run.kind, shared.host, run)
                if run and shared.host
                else contextlib.nullcontext()
            ):
                opened = await self._open(cluster, secret, kubeconfig, shared)
                name = cluster if shared.own else identities.provider(opened)
                yield Provider(name, opened), shared
        finally:
            shared.users -= 1
            if not shared.users and self._shared.get(key) is shared:
                self._shared[key] = self._shared.pop(key)
                loop = asyncio.get_running_loop()
                shared.closing = loop.call_later(_IDLE_SECONDS, self._expire, key, shared)
                idle = [(key, one) for key, one in self._shared.items() if one.users == 0]
                for longest, unused in idle[:-_MOST_IDLE]:
                    self._expire(longest, unused)

    async def _kubeconfig(self, cluster: str, secret: SecretKey) -> bytes:
        """The kubeconfig in the Secret; empty if it means the Secret's own cluster.

        Tenants write these Secrets, and our rights are not theirs: a setting has to allow that.
        """
        where = f"Secret {secret.namespace}/{secret.name}"
        if not secret.name:
            raise Malformed(f"{_COULD_NOT}: no provider secret is named: give the reference to it a name")
        runtime = await self.clusters.get(cluster)
        try:
            found = await runtime.get(SECRETS, secret.namespace, secret.name)
        except Missing as error:
            raise PermanentError(
                f'{_COULD_NOT}: could not retrieve provider secret: secrets "{secret.name}" not found',
                codes=(UNAUTHENTICATED,),
            ) from error
        data = found.raw.get("data") or {}
        try:
            kubeconfig = base64.b64decode(data.get(secret.key) or "", validate=True)
        except (TypeError, binascii.Error) as error:
            raise Malformed(f"{_COULD_NOT}: {where}: {secret.key!r} is not base64") from error
        own = any(fnmatchcase(secret.namespace, pattern) for pattern in self.clusters.own_cluster)
        if secret.key not in data or not (kubeconfig or own):
            why = "no kubeconfig found in provider secret"
            remedy = "an empty one is refused, unless the setting egress.own_cluster has its namespace"
            raise PermanentError(
                f"{_COULD_NOT}: {why}: give {where} a key {secret.key!r}; {remedy}", codes=(UNAUTHENTICATED,)
            )
        return kubeconfig

    async def _open(self, cluster: str, secret: SecretKey, kubeconfig: bytes, shared: _Shared) -> Kube:
        # Callers with the same kubeconfig wait for each other, but not for servers of other kubeconfigs.
        before = shared.failure
        async with shared.opening:
            if shared.failure and shared.failure is not before:
                # Another caller's attempt failed meanwhile. If each tried, the last one would wait for hours.
                raise Unreachable(str(shared.failure)) from shared.failure
            if shared.kube is not None and shared.kube.stale and shared.users == 1:
                shared.kube = None
                await shared.stack.aclose()
            if shared.kube is None:
                what = f"{_COULD_NOT}: Secret {secret.namespace}/{secret.name}"
                async with contextlib.AsyncExitStack() as stack:
                    opened = await stack.enter_async_context(
                        kube.from_text(kubeconfig, what, self.clusters.provider_egress)
                    )
                    try:
                        shared.own = await identities.same(opened, await self.clusters.get(cluster))
                    except Unreachable as error:
                        shared.failure = error
                        raise
                    shared.kube, shared.stack, shared.failure = opened, stack.pop_all(), None
            return shared.kube

    async def _register(self, secret: SecretKey, provider: str) -> None:
        """Register the provider cluster as a member, so that our objects there are watched."""
        try:
            if await self.leads_to(secret, watched=True) == provider:
                await self.registry.exchange(provider, None, member(provider, secret))
                logger.info("provider cluster %s is a member now", provider)
        except WindowboxError as error:
            # Runs report lasting errors. Another process may have registered it.
            logger.info("provider cluster %s is not watched: %s", provider, error)

    def _expire(self, key: _Key, shared: _Shared) -> None:
        if shared.users or self._shared.get(key) is not shared:
            return
        del self._shared[key]
        if shared.closing:
            shared.closing.cancel()
        self._begin(shared.stack.aclose(), "close an unused provider", self._ending)

    def _begin(self, act: Coroutine[Any, Any, None], name: str, tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(act, name=name)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def member(cluster: str, secret: SecretKey) -> Member:
    """A provider cluster as a member."""
    kinds = tuple(resource.id for resource in PROVIDER_KINDS)
    return Member(id=cluster, secret=secret, kinds=kinds, origin="provider")
