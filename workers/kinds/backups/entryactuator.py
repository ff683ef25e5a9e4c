"""BackupEntries: the Secret that names the backups of a Shoot's etcd, and the folder of the backups."""

from __future__ import annotations

import contextlib
import logging

from windowbox.errors import Malformed, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_ENTRIES, NAMESPACES
from workers.core.lifecycle import statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Need, Run, Status
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.kinds.backups import backupsecrets, secretsharing
from workers.kinds.backups.backupfolders import BackupFolders, checked
from workers.kinds.backups.backupsecrets import Content, Entry, SecretName
from workers.kinds.backups.secretsharing import Sharers

logger = logging.getLogger(__name__)

KIND = Kind(
    resource=BACKUP_ENTRIES,
    pool="backupentry",
    finalizer="extensions.gardener.cloud/backupentry",
    descriptions=statuses.descriptions_for("BackupEntry"),
    classes=frozenset({"garden", "shoot"}),
    deadline=180.0,
    shoot=Need.NEVER,
)


class EntryActuator(Actuator):
    """Creates and removes the Secret for etcd, and removes the folder with etcd's backups."""

    def __init__(
        self, targets: TargetClusters, kept: BackupFolders, sharers: Sharers, mount_path: str
    ) -> None:
        self._targets = targets
        self._folders = kept
        self._sharers = sharers
        self._mount_path = mount_path

    async def reconcile(self, run: Run) -> Status:
        entry, bucket = backupsecrets.entry(run.ref.name), _bucket(run)
        source = backupsecrets.referenced(run.object.spec)
        target = self._targets.own_cluster(run)
        await backupsecrets.add_finalizer(target, source, KIND.finalizer)

        def content(given: Object, found: Object | None) -> Content:
            return backupsecrets.content(run.ref.name, bucket, self._mount_path, given, found)

        if await _exists(target, entry.technical_id):
            try:
                await backupsecrets.write(
                    target, SecretName(entry.technical_id, entry.secret), source, content
                )
            except WindowboxError:
                if await _exists(target, entry.technical_id):
                    raise
        return {}

    async def delete(self, run: Run) -> None:
        target, source = self._targets.own_cluster(run), _source(run)
        if source is None or not await backupsecrets.exists(target, source):
            logger.info("%s: its Secret is not there, so nothing is removed", run.ref)
            return
        try:
            entry, bucket = backupsecrets.entry(run.ref.name), _bucket(run)
        except Malformed as error:
            logger.info("%s: never had anything, since %s", run.ref, error)
        else:
            await backupsecrets.remove_if_ours(
                target, SecretName(entry.technical_id, entry.secret), run.ref.name
            )
            if not await _twin_needs(run, target, entry, bucket):
                path = (bucket, entry.folder)
                remove = self._folders.remove
                await run.recorder.call("remove folder", "/".join(path), remove, *path, effect=True)
        await secretsharing.release(run, target, KIND, self._sharers)

    async def clean_up(self, run: Run, successor: Object | None) -> None:
        """Like `delete`, but the backups stay: only a Delete run removes them."""
        source = _source(run)
        if successor is not None or source is None:
            return
        target = self._targets.own_cluster(run)
        if not secretsharing.has_ended(run.object):
            with contextlib.suppress(Malformed):
                entry = backupsecrets.entry(run.ref.name)
                mine = SecretName(entry.technical_id, entry.secret)
                await backupsecrets.remove_if_ours(target, mine, run.ref.name)
        await secretsharing.release(run, target, KIND, self._sharers)

    async def migrate(self, run: Run) -> None:
        """Keep the backups for the next seed; release the Secret with the credentials."""
        target, secret = self._targets.own_cluster(run), backupsecrets.referenced(run.object.spec)
        if not await backupsecrets.exists(target, secret):
            raise Malformed(f"spec.secretRef: Secret {secret} does not exist: create it, or correct the name")
        await secretsharing.release(run, target, KIND, self._sharers)


def _source(run: Run) -> SecretName | None:
    """The Secret with the credentials; None if its name is invalid."""
    try:
        return backupsecrets.referenced(run.object.spec)
    except Malformed:
        return None


def _bucket(run: Run) -> str:
    return checked("spec.bucketName", run.object.spec.get("bucketName"))


async def _exists(target: TargetCluster, namespace: str) -> bool:
    """Whether the Shoot's namespace exists and is not being deleted. Read live: the bus may lag."""
    found = await target.live(NAMESPACES, "", namespace)
    return found is not None and not found.deleting


async def _twin_needs(run: Run, target: TargetCluster, entry: Entry, bucket: str) -> bool:
    """Whether the Shoot's other entry uses the folder too, and is not being deleted."""
    twin = await run.recorder.read(run.ref._replace(name=entry.twin))
    if twin is None:
        # The bus may lag or have lost it, and a removed folder cannot be restored.
        twin = await target.live(BACKUP_ENTRIES, "", entry.twin)
    if twin is None or twin.deleting or KIND.finalizer not in twin.finalizers:
        return False
    return bool(twin.spec.get("bucketName") == bucket)
