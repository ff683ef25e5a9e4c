"""Versions of Kubernetes and Gardener beside which windowbox is known to work."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True)
class Range:
    """Minor versions, from the oldest to the newest that is tried."""

    oldest: tuple[int, int]
    newest: tuple[int, int]

    def __str__(self) -> str:
        return f"{_text(self.oldest)} to {_text(self.newest)}"


SUPPORTED = {"Kubernetes": Range((1, 33), (1, 37)), "Gardener": Range((1, 140), (1, 150))}


def problem(component: str, version: str) -> str | None:
    """Why windowbox is not known to work with this version of a component; None if it is."""
    known, found = SUPPORTED[component], _VERSION.match(version)
    if not found:
        return f"{version!r} is no version: windowbox is tried with {component} {known}"
    minor = int(found[1]), int(found[2])
    if minor < known.oldest:
        return f"{component} {version} is older than windowbox supports: {known}"
    if minor > known.newest:
        return f"{component} {version} is newer than windowbox has been tried with: {known}"
    return None


def _text(minor: tuple[int, int]) -> str:
    return f"{minor[0]}.{minor[1]}"
