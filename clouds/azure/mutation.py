"""What the mutator of azure changes in a Shoot: nothing where the network is of another type than cilium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clouds.frame import networkconfig
from clouds.frame.cloud import Json, Lookup

_TYPES = ("cilium", None)


def mutate(shoot: Json, old: Mapping[str, Any] | None, find: Lookup) -> None:
    """AZU-X2."""
    networking = shoot["spec"]["networking"]
    if networking.get("type") in _TYPES and not networkconfig.is_left_alone(shoot, old):
        networking["providerConfig"] = networkconfig.unread_overlay(shoot, old)
        networkconfig.keep_udp_to_upstream_dns(shoot["spec"])
