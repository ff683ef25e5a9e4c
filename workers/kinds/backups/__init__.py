"""BackupBuckets and BackupEntries: the folders that etcd's backups are kept in, and the way to them."""
