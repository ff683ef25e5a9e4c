"""The APIs of all clusters that take part, opened when first needed."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from bus.registry import Member, Registry, SecretKey
from windowbox.clients import kube
from windowbox.clients.kube import Kube
from windowbox.errors import Malformed, Missing, TransientError
from windowbox.models.refs import RUNTIME, SECRETS


class Clusters:
    """Kubernetes clients by cluster id."""

    def __init__(self, runtime: Kube, registry: Registry, stack: contextlib.AsyncExitStack) -> None:
        self.runtime = runtime
        self._registry = registry
        self._stack = stack
        self._opened: dict[Member, Kube] = {}
        self._lock = asyncio.Lock()

    def takes_part(self, cluster: str) -> bool:
        return cluster == RUNTIME or cluster in self._registry.members

    async def get(self, cluster: str) -> Kube:
        if cluster == RUNTIME:
            return self.runtime
        member = self._registry.members.get(cluster)
        if member is None:
            raise TransientError(f"cluster {cluster!r} does not take part (any more)")
        async with self._lock:
            if member not in self._opened:
                self._opened[member] = await self._stack.enter_async_context(self._open(member))
            return self._opened[member]

    @contextlib.asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[Kube]:
        what = f"cluster {member.id!r}"
        if member.secret:
            text = await self._kubeconfig(member.secret, what)
            async with kube.from_text(text, what) as opened:
                yield opened
        else:
            async with kube.from_file(Path(member.file) if member.file else None) as opened:
                yield opened

    async def _kubeconfig(self, secret: SecretKey, what: str) -> bytes:
        where = f"{what}: Secret {secret.namespace}/{secret.name}"
        try:
            found = await self.runtime.get(SECRETS, secret.namespace, secret.name)
        except Missing as error:
            raise Malformed(f"{where} does not exist; create it, or correct the reference") from error
        try:
            return base64.b64decode(found.raw["data"][secret.key], validate=True)
        except (KeyError, TypeError, binascii.Error) as error:
            raise Malformed(f"{where} has no usable key {secret.key!r}") from error


@contextlib.asynccontextmanager
async def clusters(runtime: Kube, registry: Registry) -> AsyncIterator[Clusters]:
    async with contextlib.AsyncExitStack() as stack:
        yield Clusters(runtime, registry, stack)
