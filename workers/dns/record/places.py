"""Places: where record sets of a DNSRecord may be, as the memo of its reports tells.

A DNSRecord whose name, type or zone is changed has to leave the former place. Gardener's webhook forbids such
changes of name and type; clusters without it allow them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from windowbox.models.recordsets import RecordKey

_WRITTEN = "written"


class Place(NamedTuple):
    """A record set in a zone."""

    zone: str
    key: RecordKey

    def excludes(self, other: Place) -> bool:
        """Whether both cannot exist: a CNAME stands alone at its name."""
        same_name = (self.zone, self.key.name) == (other.zone, other.key.name)
        return same_name and self.key.type != other.key.type and "CNAME" in (self.key.type, other.key.type)


def noted(memo: Mapping[str, Any]) -> list[Place]:
    """All places that have been written since they were last known to be empty, and perhaps more."""
    return [Place(zone, RecordKey(name, type)) for zone, name, type in memo.get(_WRITTEN, ())]


def note(memo: dict[str, Any], places: Iterable[Place]) -> None:
    memo[_WRITTEN] = [[place.zone, place.key.name, place.key.type] for place in places]
