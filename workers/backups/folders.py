"""Folders of backups, through the doors of a run."""

from __future__ import annotations

from windowbox.clients.backupfolders import BackupFolders
from workers.doors import Doors


async def make(doors: Doors, kept: BackupFolders, bucket: str) -> None:
    async def act() -> None:
        await kept.make(bucket)

    await doors.call("make folder", bucket, act, effect=True)


async def remove(doors: Doors, kept: BackupFolders, *path: str) -> None:
    async def act() -> None:
        await kept.remove(*path)

    await doors.call("remove folder", "/".join(path), act, effect=True)
