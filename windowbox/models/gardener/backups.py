"""BackupBucket and BackupEntry: where the backups of etcd are kept."""

from __future__ import annotations

from windowbox.models.definitions import AGE, REGION, TYPE, Column, Definition, state
from windowbox.models.extensions import ExtensionSpec, ExtensionStatus, Raw, SecretReference
from windowbox.models.refs import BACKUP_BUCKETS, BACKUP_ENTRIES


class BackupBucketSpec(ExtensionSpec):
    region: str
    secret_ref: SecretReference
    """The Secret with the credentials for the bucket."""


class BackupBucketStatus(ExtensionStatus):
    generated_secret_ref: SecretReference | None = None
    """A Secret that was made for the bucket, and is to be used instead."""


class BackupEntrySpec(ExtensionSpec):
    backup_bucket_provider_status: Raw | None = None
    bucket_name: str
    region: str
    secret_ref: SecretReference
    """The Secret with the credentials for the bucket."""


DEFINITIONS = (
    Definition(
        resource=BACKUP_BUCKETS,
        description="A place for the backups of etcd.",
        spec=BackupBucketSpec,
        status=BackupBucketStatus,
        columns=(TYPE, REGION, state("State"), AGE),
    ),
    Definition(
        resource=BACKUP_ENTRIES,
        description="The backups of one etcd in a bucket.",
        spec=BackupEntrySpec,
        status=ExtensionStatus,
        columns=(TYPE, REGION, Column("Bucket", ".spec.bucketName"), state("State"), AGE),
    ),
)
