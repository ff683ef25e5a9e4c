"""DNS of a cloud: its hosted zones are the zones of our name servers, with ids of the cloud's form. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

_PARTS = re.compile(r"[:/]")


@dataclass(frozen=True)
class Dns:
    """How a cloud names hosted zones, and the keys of Secrets for DNS."""

    zone_id: Callable[[str], str]
    """The id of the hosted zone with this name. Zones of other names have other ids."""
    form: str = "{id}"
    """`status.zone`, of the zone's `id` and `name`, and of what the account shows."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Further names of keys in Secrets for DNS, each with the name that all Secrets may have."""

    def reported(self, zone: str, shown: Mapping[str, str]) -> str:
        """`status.zone` for the zone of this name."""
        return self.form.format(id=self.zone_id(zone), name=zone, **shown)

    def named(self, given: str, zones: Iterable[str]) -> str | None:
        """The name of the zone that a record gives by its id, by `status.zone`, or by name; None if unknown.

        What stands before the id, such as a project, is not compared: all accounts see all zones.
        """
        id_ = _PARTS.split(given)[-1]
        name = given.lower().removesuffix(".")
        return next((zone for zone in zones if name == zone or self.zone_id(zone) == id_), None)
