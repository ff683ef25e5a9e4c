"""Makes and removes the folder that a BackupBucket stands for."""

from __future__ import annotations

from windowbox.clients.backupfolders import BackupFolders, checked
from windowbox.errors import Malformed, Missing
from windowbox.models.refs import BACKUP_BUCKETS, SECRETS
from workers.backups import folders, names, secrets, sharing, words
from workers.backups.names import SecretName
from workers.backups.sharing import Sharers
from workers.lifecycle.kinds import Actuator, Kind, Need, Run, Status
from workers.owned.manifests import manifest
from workers.owned.targets import TargetCluster, TargetClusters

KIND = Kind(
    resource=BACKUP_BUCKETS,
    pool="backupbucket",
    finalizer="extensions.gardener.cloud/backupbucket",
    words=words.BUCKET,
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
        place = self._targets.own(run)
        await secrets.hold(place, names.referenced(run.object.spec), KIND.finalizer)
        await folders.make(run.recorder, self._folders, name)
        generated = names.generated(run.object)
        await _generate(place, generated)
        return {"generatedSecretRef": generated._asdict()}

    async def delete(self, run: Run) -> None:
        place, generated = self._targets.own(run), names.generated(run.object)
        # Also where it was not reported: whoever made it may have died before that.
        await place.remove(SECRETS, generated.namespace, generated.name)
        await folders.remove(run.recorder, self._folders, run.ref.name)
        await sharing.release(run, place, KIND, self._sharers)


async def _generate(place: TargetCluster, secret: SecretName) -> None:
    try:
        await place.ensure_secret(manifest(SECRETS, secret.name, secret.namespace))
    except Missing as error:
        raise Malformed(
            f"namespace {secret.namespace}, where Secret {secret.name} is to be made, does not exist: make "
            f"it, or name another with the annotation {names.GENERATED_IN}"
        ) from error
