"""Containers of Swift."""

from __future__ import annotations

from clouds.frame.services.backups import Backups

BACKUPS = Backups(for_etcd=lambda region: {"region": region})
