"""The pools `backupbucket` and `backupentry`, put together."""

from __future__ import annotations

import socket

from windowbox.clients.backupfolders import BackupFolders
from windowbox.models.kindsettings import BackupSettings
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES
from workers.backups import buckets, entries
from workers.backups.sharing import Sharers
from workers.serving import Common, Serving


def kept_here(settings: BackupSettings) -> bool:
    """Whether the disk with the backups is this host's."""
    return settings.root is not None and settings.host in (None, socket.gethostname())


def bucket_serving(common: Common) -> Serving:
    sharers = Sharers(common.bus, BACKUP_BUCKETS)
    kept = BackupFolders(common.kinds.backup.root)
    actuator = buckets.BucketActuator(common.places, kept, sharers)
    return Serving(buckets.KIND, actuator, tasks={"sharers": sharers.run})


def entry_serving(common: Common) -> Serving:
    sharers = Sharers(common.bus, BACKUP_ENTRIES)
    kept = BackupFolders(common.kinds.backup.root)
    actuator = entries.EntryActuator(common.places, kept, sharers, common.kinds.backup.mount_path)
    return Serving(entries.KIND, actuator, tasks={"sharers": sharers.run})


SERVINGS = {"backupbucket": bucket_serving, "backupentry": entry_serving}
