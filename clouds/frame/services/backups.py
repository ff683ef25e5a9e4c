"""Buckets for backups: what a cloud puts into their Secrets, and how long it keeps their objects. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windowbox.errors import Malformed

Given = Mapping[str, Any]
"""The spec of a BackupBucket."""


@dataclass(frozen=True)
class Retention:
    """Objects of a bucket cannot be deleted before they are this old."""

    period: float
    """Seconds."""
    locked: bool = False
    """It may only grow from now on."""


def nothing(_region: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Backups:
    """How a cloud keeps backups."""

    generated: Callable[[str, Given], Mapping[str, str]] | None = None
    """The generated Secret of the bucket of this name, of clouds that make one."""
    entry_keys: tuple[str, ...] = ()
    """The keys of the generated Secret, which BackupEntries get instead of the cloud's credentials."""
    for_etcd: Callable[[str], Mapping[str, str]] = field(default=nothing)
    """What the Secret for etcd has besides, by the region."""
    retention: Callable[[Given], Retention | None] | None = None
    """The retention that a bucket asks for, of clouds that have it."""


def next_retention(before: Retention | None, wanted: Retention | None) -> Retention | None:
    """The retention of a bucket from now on. Malformed if the one before is locked, and would weaken."""
    if before is None or not before.locked:
        return wanted
    days = f"{before.period / 86400:g} days"
    if wanted is None:
        raise Malformed(
            f"spec.providerConfig: the retention of {days} is locked and cannot be removed: set it again"
        )
    if not wanted.locked:
        raise Malformed(
            f"spec.providerConfig: the retention of {days} is locked and cannot be unlocked: "
            "set locked to true"
        )
    if wanted.period < before.period:
        raise Malformed(
            f"spec.providerConfig: the retention of {days} is locked and cannot become shorter: "
            f"set it to {before.period:g}s or more"
        )
    return wanted
