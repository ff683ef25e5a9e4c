"""The status of an owned load balancer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windowbox.models.objects import Object

_REPORTED = ("hostname", "ip", "ipMode")
"""What extension objects report of an address. Of its ports their definitions want to hear errors alone."""


def ingress(service: Object | None) -> list[dict[str, Any]]:
    """Where the Service can be reached, as an extension object reports it."""
    balancer = service.status.get("loadBalancer") if service else None
    entries = balancer.get("ingress") if isinstance(balancer, Mapping) else None
    if not isinstance(entries, list):
        return []
    return [
        {name: entry[name] for name in _REPORTED if entry.get(name)}
        for entry in entries
        if isinstance(entry, Mapping)
    ]
