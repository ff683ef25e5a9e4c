"""How objects of each kind are created and deleted at once, and what of them could be left."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.api.backups.keeping import keeping, reference
from tests.e2e import zones
from tests.support.balancerworld import balancer_world
from tests.support.dnsworld import dns_world
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, kind_world, stamp
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane, NameServer
from windowbox.clients.kubernetes.kube import Kube
from windowbox.kinds import POOLS, Served
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BACKUP_BUCKETS,
    BACKUP_ENTRIES,
    BASTIONS,
    DNSRECORDS,
    EXPOSURES,
    INFRASTRUCTURES,
    INGRESSES,
    NAMESPACES,
    OPERATING_SYSTEM_CONFIGS,
    SECRETS,
    SERVICES,
    Resource,
)

EXAMPLES = Path(__file__).parents[3] / "examples"
SHOOT = "shoot--demo--one"
"""Whose objects the examples are."""

Delete = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """Objects of one kind, by number, and what is left of them all."""

    create: Callable[[int], Awaitable[Delete]]
    left: Callable[[], Awaitable[list[str]]]


@dataclass(frozen=True)
class Servers:
    plane: ControlPlane
    nats: NatsServer
    named: NameServer
    folder: Path


@contextlib.asynccontextmanager
async def extension(servers: Servers, row: Served) -> AsyncIterator[Scene]:
    """Any kind of extension, as its example has it: each object in a Shoot of its own, if need be."""
    prefix, home = f"shoot--{uuid.uuid4().hex[:6]}", row.resource != INFRASTRUCTURES
    async with kind_world(servers.plane, servers.nats, row.pool) as world:
        shared = await shoot_of_example(world, prefix, home=home)

        async def create(number: int) -> Delete:
            shoot, name = shared, f"{prefix}-{number}"
            if row.resource not in SHARING:
                shoot = await shoot_of_example(world, name, home=home)
            made = example(row, shoot.namespace)
            made["metadata"]["name"] = name
            await world.kube.create(row.resource, shoot.namespace, made)
            return lambda: shoot.delete(row.resource, name)

        async def left() -> list[str]:
            kinds = (row.resource, *row.owns, SECRETS)
            return [one for kind in kinds for one in await objects(world.kube, kind, prefix)]

        yield Scene(create, left)


async def shoot_of_example(world: KindWorld, name: str, *, home: bool) -> Client:
    """A Shoot like that of the examples, if `home` with the namespace of its machines."""
    cluster = next(one for one in documents("shoot.yaml", name) if one["kind"] == "Cluster")
    shoot = await world.shoot(name, cloudProfile=cluster["spec"]["cloudProfile"])
    if home:
        await world.kube.create(NAMESPACES, "", {"metadata": {"name": f"infra-{name}"}})
    return shoot


SHARING = (BASTIONS, EXPOSURES, OPERATING_SYSTEM_CONFIGS)
"""Kinds of which a Shoot may have many objects. It takes longer to make a Shoot than to make them."""


def example(row: Served, namespace: str) -> dict[str, Any]:
    """The first object of a kind, and type, that the examples have, in another Shoot."""
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for found in documents(path.name, namespace):
            if (found["kind"], found.get("spec", {}).get("type")) == (row.resource.kind, row.type):
                found["metadata"]["annotations"] = {OPERATION: "reconcile", TIMESTAMP: stamp()}
                return found
    raise AssertionError(f"examples/ has no {row.title}")


def documents(name: str, namespace: str) -> list[dict[str, Any]]:
    text = (EXAMPLES / name).read_text().replace(SHOOT, namespace)
    return [one for one in yaml.safe_load_all(text) if one]


async def objects(kube: Kube, resource: Resource, prefix: str) -> list[str]:
    """The objects that are not a test's own, and have the prefix in their names or namespaces."""
    page = await kube.page(resource._replace(selector=""), limit=50_000)
    return [
        f"{resource.kind} {one.namespace}/{one.name} ({one.last_operation.get('description')})"
        for one in map(Object, page.items)
        if prefix in f"{one.namespace}/{one.name}"
        and one.name != CLOUDPROVIDER
        and not (resource == NAMESPACES and (one.name.startswith(prefix) or one.deleting))
    ]


@contextlib.asynccontextmanager
async def dns_record(servers: Servers, row: Served) -> AsyncIterator[Scene]:
    named, run = servers.named, uuid.uuid4().hex[:6]
    async with dns_world(servers.plane, servers.nats, named) as world:
        shoot = await world.shoot(f"shoot--{run}")

        async def create(number: int) -> Delete:
            name = f"{run}-{number}"
            spec = {"name": f"{name}.{named.zone}", "recordType": "A", "values": ["10.0.0.1"]}
            await shoot.create(DNSRECORDS, name, spec | {"secretRef": {"name": CLOUDPROVIDER}})
            return lambda: shoot.delete(DNSRECORDS, name)

        yield Scene(create, lambda: records_and_names(world.kube, named, run))


@contextlib.asynccontextmanager
async def ingress(servers: Servers, row: Served) -> AsyncIterator[Scene]:
    named, run = servers.named, uuid.uuid4().hex[:6]
    async with dns_world(servers.plane, servers.nats, named, "ingress") as world:
        shoot = await world.shoot(f"shoot--{run}")
        [body] = documents("ingress.yaml", shoot.namespace)

        async def create(number: int) -> Delete:
            name = f"{run}-{number}"
            rules = [body["spec"]["rules"][0] | {"host": f"{name}.{named.zone}"}]
            made = body | {"metadata": {"name": name}, "spec": {"rules": rules}}
            await world.kube.create(INGRESSES, shoot.namespace, made)
            status = {"loadBalancer": {"ingress": [{"ip": "172.18.255.1"}]}}
            await shoot.merge(INGRESSES, name, {"status": status}, part="status")
            return lambda: shoot.delete(INGRESSES, name)

        async def left() -> list[str]:
            ingresses = await objects(world.kube, INGRESSES, run)
            return [*ingresses, *await records_and_names(world.kube, named, run)]

        yield Scene(create, left)


async def records_and_names(kube: Kube, named: NameServer, run: str) -> list[str]:
    records = await objects(kube, DNSRECORDS, run)
    return records or [name for name in zones.transferred(named) if name.startswith(run)]


@contextlib.asynccontextmanager
async def backup_bucket(servers: Servers, row: Served) -> AsyncIterator[Scene]:
    async with keeping(servers.plane, servers.nats, servers.folder / "backups") as backups:
        secret, name = await backups.secret(), uuid.uuid4().hex[:6]

        async def create(number: int) -> Delete:
            await backups.bucket(f"{name}-{number}", secret)
            return lambda: backups.garden.delete(BACKUP_BUCKETS, f"{name}-{number}")

        async def left() -> list[str]:
            buckets = await objects(backups.world.kube, BACKUP_BUCKETS, name)
            return [*buckets, *os.listdir(backups.root), *(await backups.finalizers(secret) or ())]

        yield Scene(create, left)


@contextlib.asynccontextmanager
async def backup_entry(servers: Servers, row: Served) -> AsyncIterator[Scene]:
    async with keeping(servers.plane, servers.nats, servers.folder / "backups") as backups:
        secret, prefix = await backups.secret(), f"shoot--{uuid.uuid4().hex[:6]}"

        async def create(number: int) -> Delete:
            shoot = await backups.world.shoot(f"{prefix}-{number}")
            name = f"{shoot.namespace}--{uuid.uuid4()}"
            spec = {"region": "local", "bucketName": prefix, "secretRef": reference(secret)}
            await shoot.create(BACKUP_ENTRIES, name, spec)
            return lambda: shoot.delete(BACKUP_ENTRIES, name)

        async def left() -> list[str]:
            kinds = (BACKUP_ENTRIES, SECRETS)
            found = [one for kind in kinds for one in await objects(backups.world.kube, kind, prefix)]
            return [*found, *(await backups.finalizers(secret) or ())]

        yield Scene(create, left)


@contextlib.asynccontextmanager
async def service(servers: Servers, row: Served) -> AsyncIterator[Scene]:
    place, name = f"127.67.{os.getpid() % 250}", f"balancers-{uuid.uuid4().hex[:6]}"
    ranges = [{"prefixes": [f"{place}.64/26"]}]
    world = balancer_world(servers.plane, servers.nats, servers.folder, name, ranges=ranges)
    async with world as made, made.worker() as parts:

        async def create(number: int) -> Delete:
            await made.service(f"s{number}")
            return lambda: made.delete(f"s{number}")

        async def left() -> list[str]:
            services = await objects(made.kube, SERVICES, name)
            return [*services, *map(str, parts.store.holders()), *map(str, parts.states.known())]

        yield Scene(create, left)


_SCENES: dict[str, Callable[[Servers, Served], AbstractAsyncContextManager[Scene]]] = {
    "backupbucket": backup_bucket,
    "backupentry": backup_entry,
    "dnsrecord": dns_record,
    "ingress": ingress,
    "loadbalancer": service,
}

WITHOUT = {
    "heartbeat": "there is one object, which windowbox makes itself",
    "machine": "its finalizer is there before it is: whoever makes Machines sets it",
    "machinedeployment": "what it makes has owners, and is removed by Kubernetes",
    "machineset": "what it makes has owners, and is removed by Kubernetes",
}
"""Kinds that are not created and deleted at once here, and why."""


def scene(servers: Servers, pool: str) -> AbstractAsyncContextManager[Scene]:
    row = POOLS[pool]
    return _SCENES.get(pool, extension)(servers, row)
