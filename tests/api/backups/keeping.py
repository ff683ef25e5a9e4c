"""A world in which backups are kept, for tests of both kinds."""

from __future__ import annotations

import base64
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane
from windowbox.errors import Conflict
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES, NAMESPACES, SECRETS, Resource
from windowbox.settings.cloudsettings import CloudSettings
from windowbox.settings.kindsettings import BackupSettings, KindSettings

BUCKET_HOLDS = "extensions.gardener.cloud/backupbucket"
ENTRY_HOLDS = "extensions.gardener.cloud/backupentry"
CREATED_BY = "backup.gardener.cloud/created-by"


@dataclass
class Backups:
    """The world, the disk, and a client at work in `garden`."""

    world: KindWorld
    root: Path
    garden: Client

    async def secret(self, **data: bytes) -> str:
        name = f"credentials-{uuid.uuid4().hex[:8]}"
        await self.garden.secret(name, **data)
        return name

    async def bucket(
        self, name: str, secret: str, spec: Mapping[str, Any] = MappingProxyType({}), **metadata: Any
    ) -> None:
        about = {"region": "local", "secretRef": reference(secret)}
        await self.garden.create(BACKUP_BUCKETS, name, about | dict(spec), **metadata)

    async def entry(self, name: str, secret: str, bucket: str = "bucket", **spec: Any) -> None:
        about = {"region": "local", "bucketName": bucket, "secretRef": reference(secret)}
        await self.garden.create(BACKUP_ENTRIES, name, about | spec)

    async def ready_entry(self) -> tuple[Client, str, str]:
        """The namespace of a new Shoot, its entry, which is ready, and the entry's Secret."""
        (client, name), secret = await shoot(self), await self.secret()
        await self.entry(name, secret)
        await client.until_ready(BACKUP_ENTRIES, name)
        return client, name, secret

    async def end(self, resource: Resource, name: str) -> None:
        """Delete a bucket or an entry, and wait until it is gone."""
        await self.garden.delete(resource, name)
        await self.garden.until_gone(resource, name)

    async def finalizers(self, secret: str) -> tuple[str, ...] | None:
        found = await self.garden.get(SECRETS, secret)
        return found.finalizers if found else None

    def folder(self, *path: str) -> Path:
        """A folder with a backup in it."""
        made = self.root.joinpath(*path)
        (made / "v2").mkdir(parents=True, exist_ok=True)
        (made / "v2" / "Full-00000000").write_text("snapshot")
        return made


@contextlib.asynccontextmanager
async def opened(plane: ControlPlane, nats: NatsServer, root: Path, **work: Any) -> AsyncIterator[Backups]:
    """Workers serve both kinds, and their disk is `root`; `work` are settings of theirs."""
    os.makedirs(root, exist_ok=True)
    kinds = KindSettings(backup=BackupSettings(root=root), clouds=CloudSettings(types=CLOUD_TYPES))
    async with kind_world(plane, nats, "backupbucket", "backupentry", kinds=kinds, **work) as world:
        with contextlib.suppress(Conflict):
            await world.kube.create(NAMESPACES, "", {"metadata": {"name": "garden"}})
        yield Backups(world, root, world.client("garden"))


def reference(secret: str) -> dict[str, str]:
    return {"name": secret, "namespace": "garden"}


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


async def shoot(backups: Backups) -> tuple[Client, str]:
    """A Shoot's namespace, and the name of its entry."""
    namespace = f"shoot--b--{uuid.uuid4().hex[:8]}"
    await backups.world.kube.create(NAMESPACES, "", {"metadata": {"name": namespace}})
    return backups.world.client(namespace), f"{namespace}--{uuid.uuid4()}"


def data(found: Object | None) -> dict[str, str]:
    """The data of a Secret."""
    assert found
    return {k: base64.b64decode(v).decode() for k, v in (found.raw.get("data") or {}).items()}
