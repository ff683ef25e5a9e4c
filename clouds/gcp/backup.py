"""Buckets of Cloud Storage, and their configs in Seeds and BackupBuckets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clouds.frame.decoding import decode, decode_leniently
from clouds.frame.problems import Problem, forbidden, invalid, refusing
from clouds.frame.services.backups import Backups, Retention
from clouds.gcp.api import BackupBucketConfig
from windowbox.errors import Malformed
from windowbox.models.objects import mapping

_CONFIG = "spec.backup.providerConfig"
_IMMUTABILITY = f"{_CONFIG}.immutability"
_LEAST = 24 * 3600.0


def seed_problems(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[Problem]:
    """GCP-B1 to GCP-B3."""
    stored = _config(old, lenient=True) if old is not None else None
    config = _config(new)
    given = config.immutability if config else None
    if given:
        if given.retention_type != "bucket":
            yield invalid(f"{_IMMUTABILITY}.retentionType", given.retention_type, "write bucket")
        if given.retention_period < _LEAST:
            yield invalid(
                f"{_IMMUTABILITY}.retentionPeriod", f"{given.retention_period}s", "must be at least 24h"
            )
    before = stored.immutability if stored else None
    if before is None or not before.locked:
        return
    if given is None or not given.model_fields_set:
        yield invalid(_IMMUTABILITY, None, "immutability cannot be disabled once it is locked: set it again")
    elif not given.locked:
        yield forbidden(f"{_IMMUTABILITY}.locked", "cannot be unlocked once it is locked: set it to true")
    elif given.retention_period < before.retention_period:
        detail = f"cannot become shorter while it is locked: set it to {before.retention_period}s or more"
        yield forbidden(f"{_IMMUTABILITY}.retentionPeriod", detail)


def _config(seed: Mapping[str, Any], *, lenient: bool = False) -> BackupBucketConfig | None:
    given = mapping(mapping(seed.get("spec")).get("backup")).get("providerConfig")
    if given is None:
        return None
    with refusing(_CONFIG, "Invalid"):
        return (decode_leniently if lenient else decode)(BackupBucketConfig, given, _CONFIG)


def _retention(spec: Mapping[str, Any]) -> Retention | None:
    """GCP-B4: the retention of a BackupBucket's config, which is decoded strictly."""
    given = spec.get("providerConfig")
    config = None if given is None else decode(BackupBucketConfig, given, "spec.providerConfig")
    if config is None or config.immutability is None:
        return None
    if config.immutability.retention_period <= 0:
        raise Malformed("spec.providerConfig.immutability.retentionPeriod is not set: write it as 24h")
    return Retention(config.immutability.retention_period, config.immutability.locked)


BACKUPS = Backups(retention=_retention)
