"""BackupBuckets: a folder on the disk with the backups, and a generated Secret."""

from __future__ import annotations

import logging

from windowbox.errors import Malformed, Missing
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_BUCKETS, SECRETS
from workers.core.lifecycle.actuators import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.statuses import Descriptions, OperationTexts
from workers.core.owned.manifests import manifest
from workers.core.owned.targets import TargetClusters
from workers.kinds.backups import backupsecrets, secretsharing
from workers.kinds.backups.backupfolders import BackupFolders, checked
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

KIND = Kind(
    resource=BACKUP_BUCKETS,
    pool="backupbucket",
    finalizer="extensions.gardener.cloud/backupbucket",
    # Buckets are never migrated or restored.
    descriptions=Descriptions(reconcile=_RECONCILE, delete=_DELETE, migrate=_RECONCILE, restore=_RECONCILE),
    classes=frozenset({"garden", "shoot"}),
    deadline=180.0,
    shoot=Need.NEVER,
    migrates=False,
)


class BucketActuator(Actuator):
    """Creates and removes a bucket's folder and its generated Secret."""

    def __init__(self, targets: TargetClusters, kept: BackupFolders, sharers: Sharers) -> None:
        self._targets = targets
        self._folders = kept
        self._sharers = sharers

    async def reconcile(self, run: Run) -> Status:
        name = checked("metadata.name", run.ref.name)
        target = self._targets.own_cluster(run)
        await backupsecrets.add_finalizer(target, backupsecrets.referenced(run.object.spec), KIND.finalizer)
        await run.recorder.call("make folder", name, self._folders.make, name, effect=True)
        generated = backupsecrets.generated(run.object)
        try:
            await target.ensure_secret(manifest(SECRETS, generated.name, generated.namespace))
        except Missing as error:
            raise Malformed(
                f"namespace {generated.namespace}, where Secret {generated.name} is to be made, does not "
                f"exist: make it, or name another with the annotation {backupsecrets.GENERATED_IN}"
            ) from error
        return {"generatedSecretRef": generated._asdict()}

    async def delete(self, run: Run) -> None:
        target, generated = self._targets.own_cluster(run), backupsecrets.generated(run.object)
        # Also if it was not reported: the worker that created it may have crashed before its report.
        await target.remove(SECRETS, generated.namespace, generated.name)
        name = run.ref.name
        await run.recorder.call("remove folder", name, self._folders.remove, name, effect=True)
        await secretsharing.release(run, target, KIND, self._sharers)

    async def clean_up(self, run: Run, successor: Object | None) -> None:
        """Like `delete`, but backups stay: only a Delete run removes a folder that is not empty."""
        if successor is not None:
            return
        target = self._targets.own_cluster(run)
        if not secretsharing.has_ended(run.object):
            generated, name = backupsecrets.generated(run.object), run.ref.name
            await target.remove(SECRETS, generated.namespace, generated.name)
            door, remove = "remove empty folder", self._folders.remove_empty
            if not await run.recorder.call(door, name, remove, name, effect=True):
                logger.warning("%s: is gone; its folder is kept, as it holds backups", run.ref)
        await secretsharing.release(run, target, KIND, self._sharers)
