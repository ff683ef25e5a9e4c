"""The clusters that provider Secrets lead to: opened once for each kubeconfig, closed when unused."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bus.registry import Member, Registry, SecretKey
from windowbox.clients import kube
from windowbox.clients.clusters import Clusters
from windowbox.clients.kube import UNAUTHENTICATED, Kube
from windowbox.errors import Missing, PermanentError, TransientError, WindowboxError
from windowbox.models.refs import (
    IP_POOLS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    RUNTIME,
    SECRETS,
    SERVICES,
)

KINDS = (NAMESPACES.id, NETWORK_POLICIES.id, IP_POOLS.id, PODS.id, SERVICES.id)
"""What is watched in provider clusters: the kinds that are made there."""

_IDLE_SECONDS = 300.0
_COULD_NOT = "could not create client for infrastructure resources"


class Provider(NamedTuple):
    """A provider cluster: as it is called on the bus, and its API."""

    cluster: str
    kube: Kube


@dataclass
class _Shared:
    """A client, for all Secrets that hold the same kubeconfig."""

    provider: Provider
    stack: contextlib.AsyncExitStack
    users: int = 0
    closing: asyncio.TimerHandle | None = None


@dataclass
class Providers:
    """Clients by the content of kubeconfigs. Secrets are read anew for each run: a renewed one counts."""

    clusters: Clusters
    registry: Registry
    _shared: dict[str, _Shared] = field(default_factory=dict)
    _identities: dict[str, str] = field(default_factory=dict)
    """Of clusters on the bus, what tells them from others."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def opened(self, cluster: str, namespace: str, name: str) -> AsyncIterator[Provider]:
        """The cluster that the Secret of `cluster` leads to; kept open at least until this is left."""
        secret = SecretKey(namespace=namespace, name=name)
        kubeconfig = await self._kubeconfig(cluster, secret)
        if not kubeconfig:
            yield Provider(cluster, await self.clusters.get(cluster))
            return
        digest = hashlib.sha256(kubeconfig).hexdigest()
        shared = await self._open(cluster, secret, digest, kubeconfig)
        try:
            yield shared.provider
        finally:
            self._leave(digest, shared)

    async def aclose(self) -> None:
        """Close all of them."""
        for digest in list(self._shared):
            shared = self._shared.pop(digest)
            if shared.closing:
                shared.closing.cancel()
            await shared.stack.aclose()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _kubeconfig(self, cluster: str, secret: SecretKey) -> bytes:
        """What the Secret holds; nothing where it says, by an empty key, that its own cluster is meant."""
        runtime = await self.clusters.get(cluster)
        try:
            found = await runtime.get(SECRETS, secret.namespace, secret.name)
        except Missing as error:
            raise PermanentError(
                f'{_COULD_NOT}: could not retrieve provider secret: secrets "{secret.name}" not found',
                codes=(UNAUTHENTICATED,),
            ) from error
        data = found.raw.get("data") or {}
        where = f"Secret {secret.namespace}/{secret.name}"
        if secret.key not in data:
            raise PermanentError(
                f"{_COULD_NOT}: no kubeconfig found in provider secret: "
                f"give {where} a key {secret.key!r}, empty for the cluster it is in",
                codes=(UNAUTHENTICATED,),
            )
        try:
            return base64.b64decode(data[secret.key], validate=True)
        except (TypeError, binascii.Error) as error:
            raise PermanentError(
                f"{_COULD_NOT}: {where}: {secret.key!r} is not base64", codes=(UNAUTHENTICATED,)
            ) from error

    async def _open(self, cluster: str, secret: SecretKey, digest: str, kubeconfig: bytes) -> _Shared:
        async with self._lock:
            shared = self._shared.get(digest)
            if shared is not None and shared.provider.kube.stale and not shared.users:
                await self._close(digest, shared)
                shared = None
            if shared is None:
                shared = self._shared[digest] = await self._connected(cluster, secret, kubeconfig)
            shared.users += 1
            if shared.closing:
                shared.closing.cancel()
                shared.closing = None
        await self._have_it_watched(cluster, secret, shared.provider.cluster)
        return shared

    async def _connected(self, cluster: str, secret: SecretKey, kubeconfig: bytes) -> _Shared:
        what = f"{_COULD_NOT}: Secret {secret.namespace}/{secret.name}"
        async with contextlib.AsyncExitStack() as stack:
            opened = await stack.enter_async_context(kube.from_text(kubeconfig, what))
            identity = await _identity(opened)
            if cluster not in self._identities:
                self._identities[cluster] = await _identity(await self.clusters.get(cluster))
            same = identity == self._identities[cluster]
            provider = Provider(cluster if same else f"provider-{identity[:8]}", opened)
            return _Shared(provider, stack.pop_all())

    async def _have_it_watched(self, cluster: str, secret: SecretKey, provider: str) -> None:
        """Let the provider cluster take part, so that what happens to our objects there is heard of."""
        if provider == cluster or provider in self.registry.members or cluster != RUNTIME:
            return
        member = Member(id=provider, secret=secret, kinds=KINDS, origin="provider")
        with contextlib.suppress(TransientError):  # another was faster, or the bus is away: next time
            await self.registry.exchange(provider, None, member)

    def _leave(self, digest: str, shared: _Shared) -> None:
        shared.users -= 1
        if shared.users == 0 and self._shared.get(digest) is shared:
            loop = asyncio.get_running_loop()
            shared.closing = loop.call_later(_IDLE_SECONDS, self._expire, digest, shared)

    def _expire(self, digest: str, shared: _Shared) -> None:
        ending = asyncio.create_task(self._close(digest, shared), name="close an unused provider")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _close(self, digest: str, shared: _Shared) -> None:
        if shared.users == 0 and self._shared.get(digest) is shared:
            del self._shared[digest]
            await shared.stack.aclose()


async def _identity(opened: Kube) -> str:
    """What tells a cluster from all others: the uid of the namespace that each has."""
    try:
        return (await opened.get(NAMESPACES, "", "kube-system")).uid
    except TransientError:
        raise
    except WindowboxError:
        # Not everybody may read that. Then it is known by where it is.
        return hashlib.sha256(opened.host.encode()).hexdigest()
