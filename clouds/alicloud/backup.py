"""Buckets of OSS."""

from __future__ import annotations

from clouds.frame.services.backups import Backups

BACKUPS = Backups(for_etcd=lambda region: {"storageEndpoint": f"https://oss-{region}.aliyuncs.com/"})
