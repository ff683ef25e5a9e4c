"""Which of two versions is the higher one, and whether one is to be used at all."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import IntEnum

from windowbox.models.extensions import instant
from windowbox.models.gardener.cloudprofile import ImageVersion, Stage

_SEMVER = re.compile(
    r"v?(\d{1,18})(?:\.(\d{1,18}))?(?:\.(\d{1,18}))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_ALWAYS = datetime.min.replace(tzinfo=UTC)

Order = tuple[object, ...]


class Standing(IntEnum):
    """How much a version is to be preferred; the best is the smallest."""

    SUPPORTED = 0
    DEPRECATED = 1
    PREVIEW = 2
    EXPIRED = 3


_STANDINGS = {
    "supported": Standing.SUPPORTED,
    "deprecated": Standing.DEPRECATED,
    "preview": Standing.PREVIEW,
}


def standing(version: ImageVersion, now: datetime) -> Standing:
    """What a version is now. One of which nothing is said is supported."""
    if version.lifecycle:
        return _STANDINGS.get(_stage(version.lifecycle, now), Standing.EXPIRED)
    expires = instant(version.expiration_date)
    if expires is not None and expires <= now:
        return Standing.EXPIRED
    return _STANDINGS.get(version.classification or "supported", Standing.EXPIRED)


def order(version: str) -> Order:
    """A key by which semantic versions sort as they should (semver.org, 11); others come before all."""
    match = _SEMVER.fullmatch(version)
    if match is None:
        return (0,)
    numbers = tuple(int(part or 0) for part in match.group(1, 2, 3))
    # A version that is still to come is lower than the one it is to be.
    before = tuple(map(_identifier, match[4].split("."))) if match[4] else ()
    return (1, numbers, (0 if before else 1, before))


def _stage(lifecycle: list[Stage], now: datetime) -> str:
    begun = [(instant(stage.start_time) or _ALWAYS, stage.classification) for stage in lifecycle]
    passed = [(start, name) for start, name in begun if start <= now]
    return max(passed, key=lambda stage: stage[0])[1] if passed else ""


def _identifier(text: str) -> Order:
    return (0, int(text), "") if text.isdecimal() and len(text) < 19 else (1, 0, text)
