"""An attack on a sandbox: tenants that create, and later delete, hostile objects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from sandbox import roles
from sandbox.supervisor import Supervisor
from tests.support.hostile import manifests
from tests.support.hostile import tenants as hostile_tenants
from tests.support.hostile.manifests import Hostile
from tools.bench.client import Client
from windowbox.errors import Refused, Unreachable
from windowbox.models.extensions import OPERATION
from windowbox.models.refs import CLUSTERS, INGRESSES, SERVICES

_WRITERS = 4
_REFUSALS = (Refused, Unreachable)
"""The API server closes the connection when a body is too large."""
_FORCED = {"confirmation.gardener.cloud/force-deletion": "true"}


@dataclass
class Attack:
    """Hostile tenants in a sandbox, and the objects that the API server accepted."""

    client: Client
    namespaces: list[str]
    made: list[Hostile] = field(default_factory=list)
    refused: int = 0

    async def create(self, objects: Iterable[Hostile], pause: float = 0.0) -> None:
        """Create the objects, one every `pause` seconds on average."""
        left = iter(objects)

        async def write() -> None:
            for one in left:
                try:
                    path = one.row.resource.path(one.namespace)
                    await self.client.request("POST", path, manifests.encoded(one.body))
                except _REFUSALS:
                    self.refused += 1
                else:
                    self.made.append(one)
                    await self._write_status(one)
                await asyncio.sleep(pause * _WRITERS)  # the pace of the load

        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(write())

    async def _write_status(self, one: Hostile) -> None:
        if one.status is None:
            return
        with contextlib.suppress(*_REFUSALS):
            status = manifests.encoded({"status": one.status})
            await self.client.request("PATCH", f"{one.path}/status", status)
            if one.row.resource not in (SERVICES, INGRESSES):
                reconcile = {"metadata": {"annotations": {OPERATION: "reconcile"}}}
                await self.client.request("PATCH", one.path, reconcile)

    async def delete(self) -> None:
        """Delete all objects, by forced deletion where the kind supports it."""
        annotated = {"spec": {"shoot": {"metadata": {"annotations": _FORCED}}}}
        for name in self.namespaces:
            await self.client.request("DELETE", CLUSTERS.path("", name), accepted=(200, 404))
            await hostile_tenants.good_cluster(self.client, name)
            await self.client.request("PATCH", CLUSTERS.path("", name), annotated)
        for one in self.made:
            patch = {"metadata": {"annotations": {**_FORCED, OPERATION: "reconcile"}}}
            with contextlib.suppress(Refused):
                await self.client.request("PATCH", one.path, patch)
            await self.client.request("DELETE", one.path, accepted=(200, 202, 404))

    async def left(self) -> list[Hostile]:
        """The objects that still exist."""
        found = []
        for one in self.made:
            with contextlib.suppress(Refused):
                await self.client.request("GET", one.path)
                found.append(one)
        return found


@contextlib.asynccontextmanager
async def attack(sandbox: Supervisor, client: Client, tenants: int, seed: int) -> AsyncIterator[Attack]:
    """Create hostile tenants; the provider clusters of some never answer."""
    async with hostile_tenants.silent_server() as silent:
        kubeconfig = roles.provider_kubeconfig(sandbox.folder)
        names = await hostile_tenants.prepare(client, tenants, kubeconfig, silent, seed)
        yield Attack(client, names)
