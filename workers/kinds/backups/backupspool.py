"""The pools `backupbucket` and `backupentry`, put together."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import NamedTuple

from bus.views import View
from windowbox.errors import Malformed
from windowbox.kinds import Served
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES, ObjectRef
from workers.core.serving import Common, Serving
from workers.kinds.backups import backupsecrets, bucketactuator, entryactuator
from workers.kinds.backups.backupfolders import BackupFolders
from workers.kinds.backups.secretsharing import Sharers


class _NamespaceKey(NamedTuple):
    cluster: str
    namespace: str


def enabled(common: Common) -> bool:
    """Whether the disk with the backups is this host's."""
    settings = common.kinds.backup
    return settings.root is not None and settings.host in (None, socket.gethostname())


def serving(common: Common, row: Served) -> Serving:
    return _buckets(common) if row.resource == BACKUP_BUCKETS else _entries(common)


def _buckets(common: Common) -> Serving:
    sharers = Sharers(common.bus, BACKUP_BUCKETS)
    kept = BackupFolders(common.kinds.backup.root)
    actuator = bucketactuator.BucketActuator(common.targets, kept, sharers)
    return Serving(
        bucketactuator.KIND,
        actuator,
        tasks={"sharers": sharers.run},
        waiters=sharers.waiters,
        last_user=sharers.last_user,
    )


def _entries(common: Common) -> Serving:
    sharers = Sharers(common.bus, BACKUP_ENTRIES)
    kept = BackupFolders(common.kinds.backup.root)
    actuator = entryactuator.EntryActuator(common.targets, kept, sharers, common.kinds.backup.mount_path)
    serving = Serving(
        entryactuator.KIND,
        actuator,
        tasks={"sharers": sharers.run},
        waiters=sharers.waiters,
        last_user=sharers.last_user,
    )
    if not common.work.ignore_operation_annotation:
        return serving
    owner_index: View[_NamespaceKey] = View(common.bus, BACKUP_ENTRIES.id, _home, index=lambda home: home)
    return replace(
        serving,
        owners=lambda namespace: owner_index.refs(_NamespaceKey(namespace.cluster, namespace.name)),
        known=owner_index.complete.wait,
        tasks={**serving.tasks, "owner index": owner_index.run},
    )


def _home(entry: ObjectRef, _: Object) -> _NamespaceKey | None:
    try:
        return _NamespaceKey(entry.cluster, backupsecrets.entry(entry.name).technical_id)
    except Malformed:
        return None
