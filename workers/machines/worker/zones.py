"""How the numbers of a pool are divided among its zones."""

from __future__ import annotations


def share(zone: int, size: int, zones: int) -> int:
    """What the zone with this index gets of `size`. The first zones get what cannot be divided."""
    return size // zones + (1 if zone < size % zones else 0)
