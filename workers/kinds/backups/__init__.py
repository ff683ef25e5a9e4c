"""BackupBuckets and BackupEntries come in; folders for etcd's backups, and Secrets that name them, go out."""
