"""BackupBucket and BackupEntry: where the backups of etcd are kept."""

from __future__ import annotations

from windowbox.models.extensions import ExtensionSpec, ExtensionStatus, Raw, SecretReference


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
