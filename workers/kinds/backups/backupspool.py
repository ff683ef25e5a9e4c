"""BackupBuckets: a folder on the disk with the backups, and a generated Secret.

BackupEntries: the Secret that names the backups of a Shoot's etcd, and the folder of the backups.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import asdict, replace

from bus.views import View
from windowbox.errors import Malformed, Missing, WindowboxError
from windowbox.kinds import Served
from windowbox.models.clouds import WITH_BACKUPS
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES, NAMESPACES, SECRETS, ObjectRef
from workers.core.cloudaccounts import CloudAccounts
from workers.core.lifecycle import statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.statuses import Descriptions, OperationTexts
from workers.core.owned.manifests import manifest
from workers.core.owned.ownerindex import NamespaceKey
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.serving import Common, Serving, Tasks
from workers.kinds.backups import backupsecrets, cloudbackups, secretsharing
from workers.kinds.backups.backupfolders import BackupFolders, checked
from workers.kinds.backups.backupsecrets import Content, Entry, SecretName
from workers.kinds.backups.secretsharing import Sharers

logger = logging.getLogger(__name__)

_RECONCILE = OperationTexts(
    "Reconciling the backupbucket",
    "Successfully reconciled backupbucket",
    "Error reconciling backupbucket",
)
_DELETE = OperationTexts(
    "Deleting the BackupBucket",
    "Successfully deleted BackupBucket",
    "Error deleting BackupBucket",
)

BUCKET = Kind(
    resource=BACKUP_BUCKETS,
    pool="backupbucket",
    finalizer="extensions.gardener.cloud/backupbucket",
    # Buckets are never migrated or restored.
    descriptions=Descriptions(reconcile=_RECONCILE, delete=_DELETE, migrate=_RECONCILE, restore=_RECONCILE),
    classes=frozenset({"garden", "shoot"}),
    clouds=WITH_BACKUPS,
    deadline=180.0,
    shoot=Need.NEVER,
    migrates=False,
)


class BucketActuator(Actuator):
    """Creates and removes a bucket's folder and its generated Secret."""

    def __init__(
        self, targets: TargetClusters, accounts: CloudAccounts, kept: BackupFolders, sharers: Sharers
    ) -> None:
        self._targets = targets
        self._accounts = accounts
        self._folders = kept
        self._sharers = sharers

    async def reconcile(self, run: Run) -> Status:
        name, backups = checked("metadata.name", run.ref.name), cloudbackups.backups_of(run.object)
        target = self._targets.own_cluster(run)
        await cloudbackups.call(run, self._accounts)
        await backupsecrets.add_finalizer(target, backupsecrets.referenced(run.object.spec), BUCKET.finalizer)
        await run.recorder.call("make folder", name, self._folders.make, name, effect=True)
        if backups and backups.retention:
            wanted = backups.retention(run.object.spec)
            request = {"bucket": name, "retention": asdict(wanted) if wanted else None}
            await run.recorder.call("retain", request, self._folders.retain, name, wanted, effect=True)
        if not _has_generated(run):
            return {}
        generated = backupsecrets.generated(run.object)
        secret = manifest(SECRETS, generated.name, generated.namespace)
        if backups and backups.generated:
            content = backups.generated(name, run.object.spec)
            secret["data"] = {key: backupsecrets.encoded(text) for key, text in content.items()}
        try:
            await target.ensure_secret(secret)
        except Missing as error:
            raise Malformed(
                f"namespace {generated.namespace}, where Secret {generated.name} is to be made, does not "
                f"exist: make it, or name another with the annotation {backupsecrets.GENERATED_IN}"
            ) from error
        return {"generatedSecretRef": generated._asdict()}

    async def delete(self, run: Run) -> None:
        target, name = self._targets.own_cluster(run), run.ref.name
        await cloudbackups.call(run, self._accounts)
        if _has_generated(run):
            # Also if it was not reported: the worker that created it may have crashed before its report.
            generated = backupsecrets.generated(run.object)
            await target.remove(SECRETS, generated.namespace, generated.name)
        await run.recorder.call("remove folder", name, self._folders.remove, name, effect=True)
        await secretsharing.release(run, target, BUCKET, self._sharers)

    async def clean_up(self, run: Run, successor: Object | None) -> None:
        """Like `delete`, but backups stay: only a Delete run removes a folder that is not empty."""
        if successor is not None:
            return
        target = self._targets.own_cluster(run)
        if not secretsharing.has_ended(run.object):
            if _has_generated(run):
                generated = backupsecrets.generated(run.object)
                await target.remove(SECRETS, generated.namespace, generated.name)
            name = run.ref.name
            door, remove = "remove empty folder", self._folders.remove_empty
            if not await run.recorder.call(door, name, remove, name, effect=True):
                logger.warning("%s: is gone; its folder is kept, as it holds backups", run.ref)
        await secretsharing.release(run, target, BUCKET, self._sharers)


def _has_generated(run: Run) -> bool:
    """Whether a Secret is generated for the bucket."""
    backups = cloudbackups.backups_of(run.object)
    return backups is None or backups.generated is not None


ENTRY = Kind(
    resource=BACKUP_ENTRIES,
    pool="backupentry",
    finalizer="extensions.gardener.cloud/backupentry",
    descriptions=statuses.descriptions_for("BackupEntry"),
    classes=frozenset({"garden", "shoot"}),
    clouds=WITH_BACKUPS,
    deadline=180.0,
    shoot=Need.NEVER,
)


class EntryActuator(Actuator):
    """Creates and removes the Secret for etcd, and removes the folder with etcd's backups."""

    def __init__(
        self,
        targets: TargetClusters,
        accounts: CloudAccounts,
        kept: BackupFolders,
        sharers: Sharers,
        mount_path: str,
    ) -> None:
        self._targets = targets
        self._accounts = accounts
        self._folders = kept
        self._sharers = sharers
        self._mount_path = mount_path

    async def reconcile(self, run: Run) -> Status:
        entry, bucket = backupsecrets.entry(run.ref.name), _bucket(run)
        source = backupsecrets.referenced(run.object.spec)
        target = self._targets.own_cluster(run)
        await cloudbackups.call(run, self._accounts)
        await backupsecrets.add_finalizer(target, source, ENTRY.finalizer)
        backups = cloudbackups.backups_of(run.object)
        region = str(run.object.spec.get("region") or "")
        place = backups.for_etcd(region) if backups else {"hostPath": self._mount_path}

        def content(given: Object, found: Object | None) -> Content:
            cloudbackups.check_generated(backups, source, given)
            return backupsecrets.content(run.ref.name, {"bucketName": bucket, **place}, given, found)

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
        await cloudbackups.call(run, self._accounts)
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
        await secretsharing.release(run, target, ENTRY, self._sharers)

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
        await secretsharing.release(run, target, ENTRY, self._sharers)

    async def migrate(self, run: Run) -> None:
        """Keep the backups for the next seed; release the Secret with the credentials."""
        target, secret = self._targets.own_cluster(run), backupsecrets.referenced(run.object.spec)
        if not await backupsecrets.exists(target, secret):
            raise Malformed(f"spec.secretRef: Secret {secret} does not exist: create it, or correct the name")
        await secretsharing.release(run, target, ENTRY, self._sharers)


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
    if twin is None or twin.deleting or ENTRY.finalizer not in twin.finalizers:
        return False
    return bool(twin.spec.get("bucketName") == bucket)


def enabled(common: Common) -> bool:
    """Whether the disk with the backups is this host's."""
    settings = common.kinds.backup
    return settings.root is not None and settings.host in (None, socket.gethostname())


def serving(common: Common, row: Served) -> Serving:
    sharers, settings = Sharers(common.bus, row.resource), common.kinds.backup
    folders, accounts = BackupFolders(settings.root), CloudAccounts(common.bus, common.clusters)
    kind, tasks = BUCKET, Tasks(sharers=sharers.run)
    actuator: Actuator = BucketActuator(common.targets, accounts, folders, sharers)
    if row.resource == BACKUP_ENTRIES:
        kind, actuator = ENTRY, EntryActuator(common.targets, accounts, folders, sharers, settings.mount_path)
    serving = Serving(kind, actuator, tasks=tasks, waiters=sharers.waiters, last_user=sharers.last_user)
    if kind is BUCKET or not common.work.ignore_operation_annotation:
        return serving
    # Without the operation annotation, a new namespace of a Shoot requeues its entry.
    owner_index: View[NamespaceKey] = View(common.bus, BACKUP_ENTRIES.id, _home, index=lambda home: home)
    return replace(
        serving,
        owners=lambda namespace: owner_index.refs(NamespaceKey(namespace.cluster, namespace.name)),
        known=owner_index.complete.wait,
        tasks={**tasks, "owner index": owner_index.run},
    )


def _home(entry: ObjectRef, _: Object) -> NamespaceKey | None:
    try:
        return NamespaceKey(entry.cluster, backupsecrets.entry(entry.name).technical_id)
    except Malformed:
        return None
