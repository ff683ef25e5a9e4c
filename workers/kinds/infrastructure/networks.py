"""The networks of a Shoot, checked before anything is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import combinations

from windowbox.errors import Malformed
from windowbox.models import addresses
from windowbox.models.addresses import Network
from workers.core.lifecycle.shoots import ShootFacts

_VERSIONS = {"IPv4": 4, "IPv6": 6}


@dataclass(frozen=True)
class Networks:
    """What a Shoot has asked for, and what each of its families gets for machines."""

    nodes: tuple[Network, ...]
    pods: tuple[Network, ...]
    services: tuple[Network, ...]
    machines: Mapping[str, Network]
    """By IP family. A family that the Shoot has no nodes in is not there."""


def networks(shoot: ShootFacts) -> Networks:
    nodes, pods, services = (
        _parsed(name, cidrs)
        for name, cidrs in (("nodes", shoot.nodes), ("pods", shoot.pods), ("services", shoot.services))
    )
    if not nodes:
        raise Malformed("spec.networking.nodes of the Shoot is not set: give it a CIDR such as 10.0.0.0/16")
    _check_overlaps({"nodes": nodes, "pods": pods, "services": services})
    machines: dict[str, Network] = {}
    for family in shoot.ip_families:
        version = _VERSIONS.get(family)
        if version is None:
            raise Malformed(f"spec.networking.ipFamilies of the Shoot: {family!r} is neither IPv4 nor IPv6")
        if found := next((network for network in nodes if network.version == version), None):
            machines[family] = found
    if not machines:
        families = ", ".join(shoot.ip_families)
        raise Malformed(
            f"spec.networking.nodes of the Shoot: {nodes[0]} is not of its ipFamilies ({families}); "
            "correct one of the two"
        )
    return Networks(nodes, pods, services, machines)


def _parsed(name: str, cidrs: Iterable[str]) -> tuple[Network, ...]:
    try:
        # Spec and status may spell the same one in two ways.
        return tuple(dict.fromkeys(map(_network, cidrs)))
    except ValueError as error:
        raise Malformed(f"spec.networking.{name} of the Shoot: {error}; correct the CIDR") from error


def _network(cidr: str) -> Network:
    if addresses.prefix(cidr) is None:
        raise ValueError(f"{cidr!r:.60} does not look like 10.0.0.0/16 or fd00:10::/64")
    return ip_network(cidr)


def _check_overlaps(by_name: Mapping[str, Iterable[Network]]) -> None:
    named = [(name, network) for name, all_of in by_name.items() for network in all_of]
    for (one, a), (other, b) in combinations(named, 2):
        if one != other and a.version == b.version and a.overlaps(b):
            raise Malformed(
                f"spec.networking of the Shoot: {one} {a} and {other} {b} overlap; give each its own range"
            )
