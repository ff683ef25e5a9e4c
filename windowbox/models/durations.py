"""Durations as Go writes them: 90s, 1h30m, 1.5h."""

from __future__ import annotations

import math
import re

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_PART = re.compile(r"([\d.]+)([a-zµμ]+)", re.ASCII)
_LONGEST_TEXT = 99


def seconds(written: str, *, least: float = 0.0, most: float = math.inf) -> float | None:
    """The seconds of a duration; None if the text is none, or not between the bounds."""
    if len(written) > _LONGEST_TEXT or not _DURATION.fullmatch(written):
        return None
    found = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(written))
    return found if least <= found <= most else None
