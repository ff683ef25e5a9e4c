"""Objects that are deleted right after their creation leave nothing behind.

The API server's DELETE may read an object before our finalizer is on it and remove it afterwards: the object
is gone without a deletionTimestamp.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.api.backups.keeping import keeping
from tests.api.bastion.bastions import yard
from tests.api.extension.extending import SHOOT, extend
from tests.e2e import zones
from tests.support.dnsworld import dns_world
from tests.support.kindworld import CLOUDPROVIDER, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane, NameServer
from windowbox.errors import Missing, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BACKUP_BUCKETS,
    BASTIONS,
    DNSRECORDS,
    EXTENSIONS,
    INFRASTRUCTURES,
    IP_POOLS,
    MANAGED_RESOURCES,
    NAMESPACES,
    PODS,
    SERVICES,
    Resource,
)

NUMBER = int(os.environ.get("QUICK_DELETIONS", "100"))
"""Objects of each kind; a thousand for the long version."""
AT_ONCE = 24
LATEST = 0.03
"""Seconds between creation and deletion, at most."""
MINUTES = pytest.mark.timeout(300 + NUMBER)

Delete = Callable[[], Awaitable[None]]


async def create_and_delete(create: Callable[[int], Awaitable[Delete]]) -> None:
    """Make objects and delete each a moment later."""
    free, chance = asyncio.Semaphore(AT_ONCE), random.Random(7)

    async def one(number: int) -> None:
        async with free:
            delete = await create(number)
            # The deletion has to meet the run at every stage.
            await asyncio.sleep(chance.uniform(0, LATEST))
            await deleted(delete)

    async with asyncio.TaskGroup() as group:
        for number in range(NUMBER):
            group.create_task(one(number))


async def deleted(delete: Delete) -> None:
    """Delete for certain: an API server under load may not answer at first."""

    async def attempt() -> bool:
        try:
            await delete()
        except Missing:
            pass
        except TransientError:
            return False
        return True

    await eventually(attempt)


async def nothing_left(world: KindWorld, resource: Resource, ours: Callable[[Object], bool]) -> None:
    left: list[str] = []

    async def look() -> bool:
        page = await world.kube.page(resource._replace(selector=""), limit=5000)
        left[:] = [
            f"{one.namespace}/{one.name} ({one.last_operation.get('description')})"
            for one in map(Object, page.items)
            if ours(one)
        ]
        return not left

    with contextlib.suppress(TimeoutError):
        # Buckets that share a Secret wait for one another, half a minute each time.
        await eventually(look, patience=90 + NUMBER / 10)
    assert not left, f"{len(left)} {resource.plural} left: {left[:5]}"


def prefix(kind: str) -> str:
    return f"shoot--{kind}--{uuid.uuid4().hex[:6]}"


@MINUTES
async def test_no_name_of_a_deleted_dns_record_is_left(
    plane: ControlPlane, nats: NatsServer, named: NameServer
) -> None:
    async with dns_world(plane, nats, named) as world:
        shoot, run = await world.shoot(prefix("dns")), uuid.uuid4().hex[:6]

        async def create(number: int) -> Delete:
            name = f"{run}-{number}"
            spec = {"name": f"{name}.{named.zone}", "recordType": "A", "values": ["10.0.0.1"]}
            await shoot.create(DNSRECORDS, name, spec | {"secretRef": {"name": CLOUDPROVIDER}})
            return lambda: shoot.delete(DNSRECORDS, name)

        await create_and_delete(create)
        await nothing_left(world, DNSRECORDS, lambda one: one.namespace == shoot.namespace)

        async def names() -> list[str]:
            return [n for n in await asyncio.to_thread(zones.transferred, named) if n.startswith(run)]

        async def look() -> bool:
            return not await names()

        with contextlib.suppress(TimeoutError):
            await eventually(look)
        assert await names() == []


@MINUTES
async def test_no_namespace_of_a_deleted_infrastructure_is_left(
    plane: ControlPlane, nats: NatsServer
) -> None:
    name = prefix("infra")
    async with kind_world(plane, nats, "infrastructure") as world:

        async def create(number: int) -> Delete:
            shoot = await world.shoot(f"{name}-{number}")
            secret = {"name": CLOUDPROVIDER, "namespace": shoot.namespace}
            await shoot.create(INFRASTRUCTURES, "local", {"region": "local", "secretRef": secret})
            return lambda: shoot.delete(INFRASTRUCTURES, "local")

        await create_and_delete(create)
        await nothing_left(world, INFRASTRUCTURES, lambda one: one.namespace.startswith(name))
        await nothing_left(world, NAMESPACES, lambda one: one.name.startswith(f"infra-{name}"))
        await nothing_left(world, IP_POOLS, lambda one: name in one.name)


@MINUTES
async def test_no_machine_of_a_deleted_bastion_is_left(plane: ControlPlane, nats: NatsServer) -> None:
    async with kind_world(plane, nats, "bastion") as world:
        made = await yard(world)

        async def create(number: int) -> Delete:
            await made.create(f"b{number}")
            return lambda: made.shoot.delete(BASTIONS, f"b{number}")

        await create_and_delete(create)
        await nothing_left(world, BASTIONS, lambda one: one.namespace == made.shoot.namespace)
        for kind in (PODS, SERVICES):
            await nothing_left(world, kind, lambda one: one.namespace == made.there.namespace)


@MINUTES
async def test_no_managed_resource_of_a_deleted_extension_is_left(
    plane: ControlPlane, nats: NatsServer
) -> None:
    name = prefix("ext")
    async with kind_world(plane, nats, SHOOT) as world:

        async def create(number: int) -> Delete:
            shoot = await world.shoot(f"{name}-{number}")
            await extend(shoot, SHOOT)
            return lambda: shoot.delete(EXTENSIONS, SHOOT)

        await create_and_delete(create)
        await nothing_left(world, EXTENSIONS, lambda one: one.namespace.startswith(name))
        await nothing_left(world, MANAGED_RESOURCES, lambda one: one.namespace.startswith(name))


@MINUTES
async def test_no_folder_of_a_deleted_bucket_is_left(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    async with keeping(plane, nats, tmp_path / "backups") as backups:
        secret, name = await backups.secret(), uuid.uuid4().hex[:6]

        async def create(number: int) -> Delete:
            await backups.bucket(f"{name}-{number}", secret)
            return lambda: backups.garden.delete(BACKUP_BUCKETS, f"{name}-{number}")

        await create_and_delete(create)
        await nothing_left(backups.world, BACKUP_BUCKETS, lambda one: one.name.startswith(name))

        async def look() -> bool:
            return not os.listdir(backups.root) and await backups.finalizers(secret) == ()

        with contextlib.suppress(TimeoutError):
            await eventually(look)
        assert (os.listdir(backups.root), await backups.finalizers(secret)) == ([], ())
