"""Managed zones of Cloud DNS: named by their project and the name of the resource."""

from __future__ import annotations

from clouds.frame import inventory
from clouds.frame.services.dns import Dns

_LONGEST = 63


def _resource(name: str) -> str:
    """Letters, digits and dashes; the digits at the end tell `a.b-c` from `a-b.c`."""
    digits = inventory.digest("managed zone", name)[:5]
    return f"{name.replace('.', '-').replace('_', '-')[: _LONGEST - 8]}-{digits}"


DNS = Dns(zone_id=_resource, form="{project}/{id}")
