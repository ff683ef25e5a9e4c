"""What the mutator of openstack changes in a Shoot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clouds.frame import networkconfig
from clouds.frame.cloud import Json, Lookup


def mutate(shoot: Json, old: Mapping[str, Any] | None, find: Lookup) -> None:
    """OST-X1: without an overlay, Pods get routes."""
    if networkconfig.is_left_alone(shoot, old):
        return
    networking = shoot["spec"]["networking"]
    if networking.get("type") is not None:
        networking["providerConfig"] = config = networkconfig.overlay(shoot, old)
        found = config.get("overlay", {"enabled": False})
        if isinstance(found, dict) and not found["enabled"]:
            config["overlay"] = {"createPodRoutes": True, **_given(found)}
    networkconfig.keep_udp_to_upstream_dns(shoot["spec"])


def _given(overlay: Json) -> Json:
    return {name: value for name, value in overlay.items() if name != "createPodRoutes" or value is not None}
