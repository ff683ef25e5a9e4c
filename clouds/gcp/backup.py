"""BackupBucketConfigs of type gcp, in Seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clouds.frame.decoding import decode, decode_leniently
from clouds.frame.problems import Problem, forbidden, invalid, refusing
from clouds.gcp.api import BackupBucketConfig
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
            yield invalid(f"{_IMMUTABILITY}.retentionType", given.retention_type, "must be bucket")
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
