"""Quantities as text."""

from __future__ import annotations


def size(octets: int) -> str:
    amount = float(octets)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
