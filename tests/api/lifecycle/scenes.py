"""Worlds that serve one kind, its objects as in examples/, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.api.lifecycle import kindtable
from tests.e2e import zones
from tests.support import leftovers
from tests.support.balancerworld import balancer_world
from tests.support.dnsworld import dns_world
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, kind_world, stamp
from tests.support.natsserver import NatsServer
from tests.support.running import running
from tests.support.servers import ControlPlane, NameServer
from windowbox.errors import Conflict, TransientError, WindowboxError
from windowbox.kinds import POOLS, Served
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    DNSRECORDS,
    EXPOSURES,
    INFRASTRUCTURES,
    INGRESSES,
    MANAGED_RESOURCES,
    NAMESPACES,
    OPERATING_SYSTEM_CONFIGS,
    SECRETS,
    SERVICES,
    Resource,
)
from windowbox.settings.kindsettings import BackupSettings, KindSettings

EXAMPLES = Path(__file__).parents[3] / "examples"
SHOOT, NAME = "shoot--demo--one", "one"
"""The Shoot of the examples, and its object of each kind."""
SHARING = (BASTIONS, EXPOSURES, OPERATING_SYSTEM_CONFIGS)
"""Kinds of which a Shoot may have many objects: creating a Shoot takes longer."""


@dataclass(frozen=True)
class Servers:
    plane: ControlPlane
    nats: NatsServer
    folder: Path
    named: NameServer | None = None
    """For kinds that write names into DNS."""


@dataclass
class Subject:
    """One object of a kind of extension, and its Shoot."""

    row: Served
    shoot: Client
    body: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def there(self) -> Client:
        """The namespace of the Shoot's machines."""
        return self.shoot.world.client(f"infra-{self.shoot.namespace}")

    async def create(self, operation: str = "reconcile", **spec: Any) -> None:
        metadata = {"name": self.name, "annotations": {OPERATION: operation, TIMESTAMP: stamp()}}
        body = self.body | {"metadata": metadata, "spec": self.body["spec"] | spec}
        namespace = self.shoot.namespace if self.row.resource.namespaced else ""
        await self.shoot.kube.create(self.row.resource, namespace, body)

    async def cluster(self, **shoot: Any) -> None:
        """The Cluster of the examples, with this Shoot or CloudProfile."""
        [example] = [one for one in documents("shoot.yaml", SHOOT) if one["kind"] == "Cluster"]
        spec = {"kubernetes": {"version": "1.36.0"}} | shoot.pop("spec", {})
        profile = {"cloudProfile": example["spec"]["cloudProfile"]}
        await self.shoot.cluster(**profile | shoot | {"spec": spec})

    async def ask(self, operation: str = "reconcile", **patch: Any) -> None:
        await self.shoot.ask(self.row.resource, self.name, operation, **patch)

    async def get(self) -> Object:
        found = await self.shoot.get(self.row.resource, self.name)
        assert found
        return found

    async def until(self, holds: Callable[[Object | None], bool]) -> Object:
        found = await self.shoot.until(self.row.resource, self.name, holds)
        assert found
        return found

    async def ready(self) -> Object:
        """The object, once its reconcile has succeeded and the work queue is empty."""
        await self.shoot.until_ready(self.row.resource, self.name)
        await self.shoot.world.quiet()
        return await self.shoot.until_ready(self.row.resource, self.name)

    async def failed(self) -> Object:
        return await self.shoot.until_failed(self.row.resource, self.name)

    async def delete(self) -> None:
        await self.shoot.delete(self.row.resource, self.name)

    async def gone(self) -> None:
        await self.delete()
        await self.shoot.until_gone(self.row.resource, self.name)

    async def owned(self) -> dict[tuple[Resource, str], Object]:
        """The objects that it owns, by kind and name."""
        found = [
            (kind, one)
            for kind in (*self.row.owns, SECRETS)
            for one in await objects(self.shoot.kube, kind, self.shoot.namespace)
        ]
        ours = self.row.resource == INFRASTRUCTURES
        return {
            (kind, one.name): one
            for kind, one in found
            if not one.deleting and (ours or one.name != self.there.namespace)
        }

    def at(self, kind: Resource, one: Object) -> Client:
        """A client in the namespace of an owned object."""
        return self.shoot.world.client(one.namespace if kind.namespaced else "")

    @contextlib.asynccontextmanager
    async def with_others(self) -> AsyncIterator[None]:
        """Simulate load balancers, nodes and a resource manager: report the status that the kind awaits."""
        parts = [
            self._report(client, kind, kindtable.REPORTS[kind])
            for kind in self.row.owns
            if kind in kindtable.REPORTS
            for client in ((self.shoot,) if kind == MANAGED_RESOURCES else (self.there,))
        ]
        async with running(*parts):
            yield

    async def _report(self, client: Client, kind: Resource, status: Callable[[Object], Any]) -> None:
        watched = kind._replace(selector="", within=client.namespace)
        while True:
            page = await client.kube.page(watched)
            for one in map(Object, page.items):
                with contextlib.suppress(WindowboxError):  # deleted meanwhile
                    await client.merge(kind, one.name, {"status": status(one)}, part="status")
            with contextlib.suppress(TransientError):
                async for events in client.kube.watch(watched, page.resource_version):
                    if any(event.type in ("ADDED", "MODIFIED") for event in events):
                        break


@dataclass
class Stand:
    """A world that serves a kind of extension, and objects of this kind."""

    row: Served
    world: KindWorld
    servers: Servers
    prefix: str = field(default_factory=lambda: f"shoot--{uuid.uuid4().hex[:6]}")
    credentials: str = field(default_factory=lambda: f"credentials-{uuid.uuid4().hex[:6]}")
    """The Secret of backups. It is shared, as Gardener's are."""

    async def another(self) -> Stand:
        """For other objects, in the same world."""
        made = Stand(self.row, self.world, self.servers)
        # At its end, a test removes the objects of the kinds that it has expected.
        leftovers.expect(self.servers.plane, self.row.resource)
        if self.row.package == "kinds.backups":
            with contextlib.suppress(Conflict):
                await self.world.kube.create(NAMESPACES, "", {"metadata": {"name": "garden"}})
            await self.world.client("garden").secret(made.credentials, key=b"whispered to no recording")
        return made

    async def subject(self, number: int = 0, *, shared: bool = False) -> Subject:
        """An object not created yet, in an existing Shoot: its own or a `shared` one."""
        shoot = self.world.client(self.prefix if shared else f"{self.prefix}-{number}")
        body = self._example(shoot.namespace)
        if shared:
            body["metadata"]["name"] = f"{self.prefix}-{number}"
        made = Subject(self.row, shoot, body)
        if await shoot.get(NAMESPACES, shoot.namespace) is None:
            await self.world.shoot(shoot.namespace)
            await made.cluster()
            if self.row.resource != INFRASTRUCTURES:
                await self.world.kube.create(NAMESPACES, "", {"metadata": {"name": made.there.namespace}})
        return made

    def _example(self, namespace: str) -> dict[str, Any]:
        body = example(self.row, namespace)
        if body["kind"] == "BackupBucket":
            body["metadata"]["name"] = namespace
        if body["kind"].startswith("Backup"):
            body["spec"]["secretRef"]["name"] = self.credentials
        if self.servers.named:
            body["spec"] |= {"name": f"{namespace}.{self.servers.named.zone}"}
        return body

    async def left(self) -> list[str]:
        """All objects, names, folders and finalizers that are left."""
        kinds = (self.row.resource, *self.row.owns, SECRETS)
        left = [one for kind in kinds for one in await named(self.world.kube, kind, self.prefix)]
        if self.servers.named:
            left += [name for name in zones.transferred(self.servers.named) if self.prefix in name]
        root = self.world.kinds.backup.root
        if root and root.exists():
            left += [name for name in os.listdir(root) if self.prefix in name]
        secret = await self.world.kube.find(SECRETS, "garden", self.credentials)
        return [*left, *(secret.finalizers if secret else ())]


@contextlib.asynccontextmanager
async def standing(servers: Servers, pool: str) -> AsyncIterator[Stand]:
    row = POOLS[pool]
    if row.resource == DNSRECORDS:
        assert servers.named
        opened = dns_world(servers.plane, servers.nats, servers.named)
    else:
        served = (pool, *kindtable.WITH.get(pool, ()))
        opened = kind_world(servers.plane, servers.nats, *served, kinds=settings(servers))
    async with opened as world:
        yield await Stand(row, world, servers).another()


def settings(servers: Servers) -> KindSettings:
    root = servers.folder / "backups"
    root.mkdir(exist_ok=True)
    return KindSettings(backup=BackupSettings(root=root))


def example(row: Served, namespace: str) -> dict[str, Any]:
    """The first object of this kind and type in examples/, moved to another Shoot."""
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for found in documents(path.name, namespace):
            if (found["kind"], found.get("spec", {}).get("type")) == (row.resource.kind, row.type):
                return found
    raise AssertionError(f"examples/ has no {row.title}")


def documents(name: str, namespace: str) -> list[dict[str, Any]]:
    text = (EXAMPLES / name).read_text().replace(SHOOT, namespace)
    return [one for one in yaml.safe_load_all(text) if one]


async def objects(kube: Any, resource: Resource, prefix: str) -> list[Object]:
    """Objects with the prefix in their names or namespaces, without those that the test created."""
    page = await kube.page(resource._replace(selector=""), limit=50_000)
    return [
        one
        for one in map(Object, page.items)
        if prefix in f"{one.namespace}/{one.name}"
        and one.name != CLOUDPROVIDER
        and not (resource == NAMESPACES and (one.name.startswith(prefix) or one.deleting))
    ]


async def named(kube: Any, resource: Resource, prefix: str) -> list[str]:
    return [
        f"{resource.kind} {one.namespace}/{one.name} ({one.last_operation.get('description')})"
        for one in await objects(kube, resource, prefix)
    ]


Delete = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """Creates objects of one kind, by number, and lists what is left of all."""

    create: Callable[[int], Awaitable[Delete]]
    left: Callable[[], Awaitable[list[str]]]


@contextlib.asynccontextmanager
async def extension(servers: Servers, pool: str) -> AsyncIterator[Scene]:
    async with standing(servers, pool) as stand:
        shared = stand.row.resource in SHARING
        if shared:
            await stand.subject(shared=True)  # its Shoot is there before they are created at once

        async def create(number: int) -> Delete:
            subject = await stand.subject(number, shared=shared)
            await subject.create()
            return subject.delete

        yield Scene(create, stand.left)


@contextlib.asynccontextmanager
async def ingress(servers: Servers, pool: str) -> AsyncIterator[Scene]:
    assert servers.named
    zone, run = servers.named.zone, uuid.uuid4().hex[:6]
    async with dns_world(servers.plane, servers.nats, servers.named, pool) as world:
        shoot = await world.shoot(f"shoot--{run}")
        [body] = documents("ingress.yaml", shoot.namespace)

        async def create(number: int) -> Delete:
            name = f"{run}-{number}"
            rules = [body["spec"]["rules"][0] | {"host": f"{name}.{zone}"}]
            made = body | {"metadata": {"name": name}, "spec": {"rules": rules}}
            await world.kube.create(INGRESSES, shoot.namespace, made)
            status = {"loadBalancer": {"ingress": [{"ip": "172.18.255.1"}]}}
            await shoot.merge(INGRESSES, name, {"status": status}, part="status")
            return lambda: shoot.delete(INGRESSES, name)

        async def left() -> list[str]:
            assert servers.named
            found = [one for kind in (INGRESSES, DNSRECORDS) for one in await named(world.kube, kind, run)]
            return found or [name for name in zones.transferred(servers.named) if name.startswith(run)]

        yield Scene(create, left)


@contextlib.asynccontextmanager
async def service(servers: Servers, pool: str) -> AsyncIterator[Scene]:
    place, name = f"127.67.{os.getpid() % 250}", f"balancers-{uuid.uuid4().hex[:6]}"
    ranges = [{"prefixes": [f"{place}.64/26"]}]
    world = balancer_world(servers.plane, servers.nats, servers.folder, name, ranges=ranges)
    async with world as made, made.worker() as parts:

        async def create(number: int) -> Delete:
            await made.service(f"s{number}")
            return lambda: made.delete(f"s{number}")

        async def left() -> list[str]:
            services = await named(made.kube, SERVICES, name)
            return [*services, *map(str, parts.store.holders()), *map(str, parts.states.known())]

        yield Scene(create, left)


def scene(servers: Servers, pool: str) -> AbstractAsyncContextManager[Scene]:
    return {"ingress": ingress, "loadbalancer": service}.get(pool, extension)(servers, pool)
