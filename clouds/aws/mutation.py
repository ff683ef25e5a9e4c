"""What the mutator of aws changes in a Shoot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clouds.aws.api import ControlPlaneConfig
from clouds.frame import networkconfig
from clouds.frame.cloud import Json, Lookup
from clouds.frame.decoding import decode, spelled


def mutate(shoot: Json, old: Mapping[str, Any] | None, find: Lookup) -> None:
    """AWS-X8, AWS-M1."""
    if networkconfig.is_left_alone(shoot, old):
        return
    spec = shoot["spec"]
    config = networkconfig.overlay(shoot, old)
    spec["networking"]["providerConfig"] = config
    spec["provider"]["controlPlaneConfig"] = _control_plane(spec, networkconfig.is_off(config))
    networkconfig.keep_udp_to_upstream_dns(spec)


def _control_plane(spec: Json, overlay_off: bool) -> Json:
    given = spec["provider"].get("controlPlaneConfig")
    if given is None:
        config: Json = {"apiVersion": f"{ControlPlaneConfig.group}/v1alpha1", "kind": "ControlPlaneConfig"}
    else:
        path = "spec.provider.controlPlaneConfig"
        config = spelled(decode(ControlPlaneConfig, given, path, kind_optional=True))
        config |= {"apiVersion": f"{ControlPlaneConfig.group}/v1alpha1", "kind": "ControlPlaneConfig"}
        # Decoding sets defaults; a new config goes without.
        config["storage"] = {"managedDefaultClass": True, **config.get("storage", {})}
    config.setdefault("cloudControllerManager", {})["useCustomRouteController"] = overlay_off
    families = spec["networking"].get("ipFamilies") or ["IPv4"]
    if families == ["IPv6"] or len(families) > 1:
        config.setdefault("loadBalancerController", {})["enabled"] = True
    return config
