"""Folders of backups, through the doors of a run."""

from __future__ import annotations

from windowbox.clients.backupfolders import BackupFolders
from workers.recorder import Recorder


async def make(recorder: Recorder, kept: BackupFolders, bucket: str) -> None:
    async def act() -> None:
        await kept.make(bucket)

    await recorder.call("make folder", bucket, act, effect=True)


async def remove(recorder: Recorder, kept: BackupFolders, *path: str) -> None:
    async def act() -> None:
        await kept.remove(*path)

    await recorder.call("remove folder", "/".join(path), act, effect=True)
