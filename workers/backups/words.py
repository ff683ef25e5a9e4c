"""What BackupBuckets and BackupEntries say of their runs."""

from workers.lifecycle.statuses import Phrases, Words, words_for_kind

_RECONCILE = Phrases(
    "Reconciling the backupbucket",
    "Successfully reconciled backupbucket",
    "Error reconciling backupbucket",
)
_DELETE = Phrases(
    "Deleting the BackupBucket",
    "Successfully deleted BackupBucket",
    "Error deleting BackupBucket",
)

# Buckets are never handed over: the last two are not said.
BUCKET = Words(reconcile=_RECONCILE, delete=_DELETE, migrate=_RECONCILE, restore=_RECONCILE)
ENTRY = words_for_kind("BackupEntry")
