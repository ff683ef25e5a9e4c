"""What mutators change in the network config of a Shoot: the overlay is off for new Shoots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clouds.frame.cloud import Json, Lookup, Mutate
from clouds.frame.gardenobjects import shoot as read
from windowbox.errors import Malformed

_CONFIG = "spec.networking.providerConfig"


def overlay(shoot: Json, old: Mapping[str, Any] | None) -> Json:
    """The network config with its overlay: as given, else off at creation, else as it was."""
    config = unread_overlay(shoot, old)
    found = config.get("overlay")
    if isinstance(found, dict) and not isinstance(found.get("enabled"), bool):
        raise Malformed(f"{_CONFIG}.overlay.enabled has to be true or false")
    return config


def unread_overlay(shoot: Json, old: Mapping[str, Any] | None) -> Json:
    """The same for mutators that do not look into the overlay: it may be anything."""
    config = _config(shoot["spec"]["networking"])
    if config.get("overlay") is None:
        if old is None:
            config["overlay"] = {"enabled": False}
        else:
            stored = _config(old["spec"]["networking"]).get("overlay")
            if stored is not None:
                config["overlay"] = stored
    return config


def is_off(config: Mapping[str, Any]) -> bool:
    """Whether the config switches the overlay off."""
    found = config.get("overlay")
    return isinstance(found, dict) and not found["enabled"]


def keep_udp_to_upstream_dns(spec: Json) -> None:
    """Node-local DNS asks upstream over UDP, where the Shoot does not say otherwise."""
    dns = spec.get("systemComponents", {}).get("nodeLocalDNS", {})
    if dns.get("enabled") and dns.get("forceTCPToUpstreamDNS") is None:
        dns["forceTCPToUpstreamDNS"] = False


def without_overlay(snat: bool = False) -> Mutate:
    """A mutator that switches the overlay off, and on demand SNAT to the upstream DNS with it."""

    def mutate(shoot: Json, old: Mapping[str, Any] | None, find: Lookup) -> None:
        if not is_left_alone(shoot, old):
            shoot["spec"]["networking"]["providerConfig"] = config = overlay(shoot, old)
            if snat and is_off(config):
                config["snatToUpstreamDNS"] = {"enabled": False}

    return mutate


def is_left_alone(shoot: Mapping[str, Any], old: Mapping[str, Any] | None) -> bool:
    """Whether mutators skip the Shoot: it moves, it goes, or nothing changed."""
    new = read(shoot)
    operation, seed, current = new.status.last_operation, new.spec.seed_name, new.status.seed_name
    if operation and operation.type != "Migrate" and seed and current and seed != current:
        return True
    if new.metadata.deletion_timestamp:
        return True
    if old is None:
        return False
    restores = operation and operation.type == "Restore" and operation.state != "Succeeded"
    moves = restores or (operation and operation.type == "Migrate")
    return bool(moves or read(old).metadata.deletion_timestamp or shoot["spec"] == old["spec"])


def _config(networking: Mapping[str, Any]) -> Json:
    config = networking.get("providerConfig")
    if config is not None and not isinstance(config, dict):
        raise Malformed(f"{_CONFIG} has to be an object")
    return dict(config or {})
