"""Kubernetes clients of all member clusters, opened on first use."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Set
from pathlib import Path
from typing import NamedTuple

from bus.clusters.registry import Member, Registry
from windowbox.clients.kubernetes import identities, kube
from windowbox.clients.kubernetes.egress import Egress
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed, Missing, TransientError
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.refs import RUNTIME, SECRETS, SecretKey
from windowbox.settings.clustersettings import EgressSettings


class _Opened(NamedTuple):
    """A member's client, and the cleanup when it is closed."""

    credentials: SecretKey | str | None
    kube: Kube
    stack: contextlib.AsyncExitStack


class Clusters:
    """Kubernetes clients by cluster id. Ask for one each time: it may be closed when credentials change."""

    def __init__(
        self,
        runtime: Kube,
        registry: Registry,
        egress: EgressSettings,
        files: Mapping[str, Path],
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self.runtime = runtime
        self._files = {cluster: file.absolute() for cluster, file in files.items()}
        self.provider_egress = Egress(egress.denied, egress.allowed)
        """The egress rules for provider clusters."""
        self.own_cluster = egress.own_cluster
        """Namespaces of Secrets whose empty kubeconfig means the cluster that they are in."""
        # The API servers of control planes are Services in our own networks.
        self._egress = Egress((), egress.allowed)
        self._registry = registry
        self._opened: dict[str, _Opened] = {}
        self._hosts: dict[tuple[str, str | None], str] = {}
        """The hosts of members' kubeconfig files: a file that leads to another host later is refused."""
        self._locks: dict[str, asyncio.Lock] = {}
        """By cluster: a slow cluster must not delay the others."""
        stack.push_async_callback(self._close_all_but, frozenset)

    def has_left(self, cluster: str) -> bool:
        """Whether the cluster has left. After a loss of the bus, this is unknown."""
        return cluster in self._registry.left

    def cloud(self, cluster: str) -> CloudFacts | None:
        """The cloud that the load balancers of the cluster emulate, if any."""
        return self._registry.cloud(cluster)

    def is_asleep(self, cluster: str) -> bool:
        """Whether the cluster is hibernated: it has no API server at the moment."""
        return cluster in self._registry.asleep()

    async def get(self, cluster: str) -> Kube:
        if cluster == RUNTIME:
            return self.runtime
        member = self._registry.members.get(cluster)
        if member is None:
            raise TransientError(f"cluster {cluster!r} is no member (any more)")
        if member.asleep:
            raise TransientError(f"cluster {cluster!r} is hibernated")
        async with self._locks.setdefault(cluster, asyncio.Lock()):
            opened = self._opened.get(cluster)
            if opened and (opened.credentials != _credentials(member) or opened.kube.stale):
                # Credentials may have been renewed: read them again.
                await self._close(cluster)
            if cluster not in self._opened:
                stack = contextlib.AsyncExitStack()
                kube = await stack.enter_async_context(self._open(member))
                self._opened[cluster] = _Opened(_credentials(member), kube, stack)
                if cluster not in self._registry.members:
                    await self._close(cluster)
                    raise TransientError(f"cluster {cluster!r} has left")
            return self._opened[cluster].kube

    async def follow(self) -> None:
        """Close the clients of clusters that leave; never returns."""
        changed = asyncio.Event()
        self._registry.on_change(changed.set)
        while True:
            await changed.wait()
            changed.clear()
            await self._close_all_but(lambda: self._registry.members.keys() - self._registry.asleep())

    async def _close_all_but(self, kept: Callable[[], Set[str]]) -> None:
        for cluster in list(self._locks):
            # The cluster may have joined again while another one was closed.
            if cluster in kept() or self._locks[cluster].locked():
                continue  # `get` holds the lock, and checks whether the cluster has left
            del self._locks[cluster]
            await self._close(cluster)
            if cluster not in self._registry.members:
                self._hosts = {key: host for key, host in self._hosts.items() if key[0] != cluster}

    async def _close(self, cluster: str) -> None:
        if opened := self._opened.pop(cluster, None):
            await opened.stack.aclose()

    @contextlib.asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[Kube]:
        what, secret = f"cluster {member.id!r}", member.secret
        if secret:
            where = f"Secret {secret.namespace}/{secret.name}"
            try:
                found = await self.runtime.get(SECRETS, secret.namespace, secret.name)
            except Missing as error:
                problem = f"{what}: {where} does not exist; create it, or correct the reference"
                raise Malformed(problem) from error
            try:
                text = base64.b64decode(found.raw["data"][secret.key], validate=True)
            except (KeyError, TypeError, binascii.Error) as error:
                raise Malformed(f"{what}: {where} has no usable key {secret.key!r}") from error
            egress = self.provider_egress if member.origin == "provider" else self._egress
            async with kube.from_text(text, what, egress) as opened:
                # A tenant may change a provider Secret, and its members' objects are trusted by others.
                if member.origin == "provider" and identities.provider(opened) != member.id:
                    raise Malformed(
                        f"{what}: {where} leads to another cluster now; another Secret will be looked for"
                    )
                yield opened
            return
        if member.file is None:
            raise Malformed(f"{what} has neither a Secret nor a file with its kubeconfig: let it join again")
        file = Path(member.file)
        if self._files.get(member.id) != file:  # it may run programs, so the settings have to name it, too
            raise Malformed(
                f"{what}: the settings of this process name no file {member.file} for it; "
                f"set cluster.files to {{{member.id}: {member.file}}}, or put the kubeconfig into a Secret"
            )
        async with kube.from_file(file) as opened:
            key = (member.id, member.file)
            if (former := self._hosts.setdefault(key, opened.host)) != opened.host:
                raise Malformed(
                    f"{what}: {member.file} leads to {opened.host} instead of {former}: correct it, or "
                    "restart this process if that is intended"
                )
            try:
                yield opened
            finally:
                self._hosts[key] = opened.host


def _credentials(member: Member) -> SecretKey | str | None:
    return member.secret or member.file


@contextlib.asynccontextmanager
async def clusters(
    runtime: Kube, registry: Registry, egress: EgressSettings, files: Mapping[str, Path] | None = None
) -> AsyncIterator[Clusters]:
    """The member clusters. `files` are the kubeconfigs of the members that may be read from a file."""
    async with contextlib.AsyncExitStack() as stack:
        made = Clusters(runtime, registry, egress, files or {}, stack)
        following = asyncio.create_task(made.follow(), name="clusters: close those that left")
        try:
            yield made
        finally:
            following.cancel()
            await asyncio.wait([following])
