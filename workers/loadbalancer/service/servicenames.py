"""Host names of a Service: which lead to it, and which records are to be removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windowbox.models.loadbalancers import Family
from windowbox.models.recordsets import RecordType

Records = dict[RecordType, str]
"""The addresses of a name."""
Names = dict[str, dict[str, Any]]
"""Host names as reports have them, the present one first: each with its `zone` and its `records`."""

_MOST_FORMER = 3
"""Former host names of a Service that still lead to it."""
_TYPES: dict[Family, RecordType] = {"IPv4": "A", "IPv6": "AAAA"}


@dataclass(frozen=True)
class Former:
    """What becomes of former host names."""

    kept: Names
    removed: Names
    """Those, and the records of kept ones, that lead to addresses which others may get."""


def reported(memo: Mapping[str, Any]) -> Names:
    """The host names of a report."""
    found: Names = memo.get("names") or {}
    return found


def records(addresses: Mapping[Family, str]) -> Records:
    return {_TYPES[of]: address for of, address in sorted(addresses.items())}


def former(before: Names, present: str, addresses: Mapping[Family, str]) -> Former:
    """A former name leads to the Service as long as that has its addresses.

    AWS leaves the old load balancer behind, too (AWS-X2).
    """
    held = set(addresses.values())
    kept: Names = {}
    removed: Names = {}
    for name, one in before.items():
        if name == present:
            continue
        room = len(kept) < _MOST_FORMER
        valid = {of: a for of, a in one["records"].items() if room and a in held}
        if valid:
            kept[name] = {**one, "records": valid}
        if rest := {of: a for of, a in one["records"].items() if of not in valid}:
            removed[name] = {**one, "records": rest}
    return Former(kept, removed)
