"""BackupEntries whose namespace comes later, in a world of their own: workers of one look at all entries."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.api.backups import keeping
from tests.api.backups.keeping import ENTRY_HOLDS
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.refs import BACKUP_ENTRIES, NAMESPACES, SECRETS


@rule("T-6", "BE-2")
async def test_a_later_namespace_triggers_a_run(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    async with keeping.opened(plane, nats, tmp_path / "backups", ignore_operation_annotation=True) as backups:
        client = backups.world.client(f"shoot--b--{uuid.uuid4().hex[:8]}")
        name = f"{client.namespace}--{uuid.uuid4()}"
        secret = await backups.secret()
        await backups.entry(name, secret)
        await client.until_ready(BACKUP_ENTRIES, name)
        assert await backups.finalizers(secret) == (ENTRY_HOLDS,)
        await backups.world.quiet()
        await backups.world.kube.create(NAMESPACES, "", {"metadata": {"name": client.namespace}})
        await client.until(SECRETS, "etcd-backup", lambda found: found is not None)
