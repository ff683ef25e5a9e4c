"""Makes and removes the folder that a BackupBucket stands for."""

from __future__ import annotations

import logging

from windowbox.errors import Malformed, Missing
from windowbox.models.objects import Object
from windowbox.models.refs import BACKUP_BUCKETS, SECRETS
from workers.core.lifecycle.kinds import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.statuses import Descriptions, OperationTexts
from workers.core.owned.manifests import manifest
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.kinds.backups import backupsecrets, secretsharing
from workers.kinds.backups.backupfolders import BackupFolders, checked
from workers.kinds.backups.backupsecrets import SecretName
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
    # Buckets are never handed over: the last two are not used.
    descriptions=Descriptions(reconcile=_RECONCILE, delete=_DELETE, migrate=_RECONCILE, restore=_RECONCILE),
    classes=frozenset({"garden", "shoot"}),
    deadline=180.0,
    shoot=Need.NEVER,
    migrates=False,
)


class BucketActuator(Actuator):
    """Makes and removes a bucket: a folder, and a Secret that others may be given."""

    def __init__(self, targets: TargetClusters, kept: BackupFolders, sharers: Sharers) -> None:
        self._targets = targets
        self._folders = kept
        self._sharers = sharers

    async def reconcile(self, run: Run) -> Status:
        name = checked("metadata.name", run.ref.name)
        target = self._targets.own_cluster(run)
        await backupsecrets.add_finalizer(target, backupsecrets.referenced(run.object.spec), KIND.finalizer)

        async def make_folder() -> None:
            await self._folders.make(name)

        await run.recorder.call("make folder", name, make_folder, effect=True)
        generated = backupsecrets.generated(run.object)
        await _generate(target, generated)
        return {"generatedSecretRef": generated._asdict()}

    async def delete(self, run: Run) -> None:
        target, generated = self._targets.own_cluster(run), backupsecrets.generated(run.object)
        # Also where it was not reported: whoever made it may have died before that.
        await target.remove(SECRETS, generated.namespace, generated.name)

        async def remove_folder() -> None:
            await self._folders.remove(run.ref.name)

        await run.recorder.call("remove folder", run.ref.name, remove_folder, effect=True)
        await secretsharing.release(run, target, KIND, self._sharers)

    async def clean_up(self, run: Run, successor: Object | None) -> None:
        """Like `delete`, but backups stay: only a Delete run removes a folder that is not empty."""
        if successor is not None:
            return
        target = self._targets.own_cluster(run)
        if not secretsharing.has_ended(run.object):
            await self._remove_unused(run, target)
        await secretsharing.release(run, target, KIND, self._sharers)

    async def _remove_unused(self, run: Run, target: TargetCluster) -> None:
        generated = backupsecrets.generated(run.object)
        await target.remove(SECRETS, generated.namespace, generated.name)

        async def act() -> bool:
            return await self._folders.remove_empty(run.ref.name)

        if not await run.recorder.call("remove empty folder", run.ref.name, act, effect=True):
            logger.warning("%s: is gone; its folder is kept, as it holds backups", run.ref)


async def _generate(target: TargetCluster, secret: SecretName) -> None:
    try:
        await target.ensure_secret(manifest(SECRETS, secret.name, secret.namespace))
    except Missing as error:
        raise Malformed(
            f"namespace {secret.namespace}, where Secret {secret.name} is to be made, does not exist: make "
            f"it, or name another with the annotation {backupsecrets.GENERATED_IN}"
        ) from error
