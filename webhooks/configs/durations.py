"""Durations as Go spells them: `1h0m30s`."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
_UNITS["h"] = 3600 * 10**9
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LONGEST = 100
_LIMIT = 2**63


def parsed(text: str) -> int:
    """In nanoseconds. ValueError if it is none."""
    sign, rest = (-1 if text[:1] == "-" else 1), text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, at = 0, 0
    for part in _PART.finditer(rest[:_LONGEST]):
        if part.start() != at:
            break
        total, at = total + int(Fraction(part[1].rstrip(".")) * _UNITS[part[2]]), part.end()
    if not rest or at != len(rest) or total >= _LIMIT:
        raise ValueError(f"{text!r:.50} is not a duration such as 1m30s")
    return sign * total


def spelled(nanoseconds: int) -> str:
    sign, amount = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    if amount < 10**9:
        unit = next((u for u in ("ms", "µs") if amount >= _UNITS[u]), "ns")
        return f"{sign}{_decimal(amount, _UNITS[unit])}{unit}" if amount else "0s"
    minutes, rest = divmod(amount, 60 * 10**9)
    text = f"{_decimal(rest, 10**9)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = (f"{hours}h" if hours else "") + f"{minutes}m{text}"
    return sign + text


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    digits = str(rest).zfill(len(str(unit)) - 1).rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
