"""The pools `backupbucket` and `backupentry`."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import NamedTuple

from bus.views import View
from windowbox.errors import Malformed
from windowbox.kinds import Served
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES, ObjectRef
from workers.core.serving import Common, Serving, Tasks
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
    sharers, settings = Sharers(common.bus, row.resource), common.kinds.backup
    folders = BackupFolders(settings.root)
    tasks: Tasks = {"sharers": sharers.run}
    if row.resource == BACKUP_BUCKETS:
        kind, actuator = bucketactuator.KIND, bucketactuator.BucketActuator(common.targets, folders, sharers)
        return Serving(kind, actuator, tasks=tasks, waiters=sharers.waiters, last_user=sharers.last_user)
    serving = Serving(
        entryactuator.KIND,
        entryactuator.EntryActuator(common.targets, folders, sharers, settings.mount_path),
        tasks=tasks,
        waiters=sharers.waiters,
        last_user=sharers.last_user,
    )
    if not common.work.ignore_operation_annotation:
        return serving
    # Without the operation annotation, a new namespace of a Shoot requeues its entry.
    owner_index: View[_NamespaceKey] = View(common.bus, BACKUP_ENTRIES.id, _home, index=lambda home: home)
    return replace(
        serving,
        owners=lambda namespace: owner_index.refs(_NamespaceKey(namespace.cluster, namespace.name)),
        known=owner_index.complete.wait,
        tasks={**tasks, "owner index": owner_index.run},
    )


def _home(entry: ObjectRef, _: Object) -> _NamespaceKey | None:
    try:
        return _NamespaceKey(entry.cluster, backupsecrets.entry(entry.name).technical_id)
    except Malformed:
        return None
