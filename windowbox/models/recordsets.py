"""DNS record sets as values, validated and normalized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RecordType = Literal["A", "AAAA", "CNAME", "TXT"]


@dataclass(frozen=True, slots=True)
class RecordKey:
    """One RRset: all values of one type at one name."""

    name: str
    """Absolute, lower case, without the final dot."""
    type: RecordType


@dataclass(frozen=True, slots=True)
class RecordSet:
    """What one name should answer for one type."""

    key: RecordKey
    ttl: int
    values: tuple[str, ...]
    """Sorted, each once: addresses in their canonical text form, a CNAME's target like a name, raw text."""
