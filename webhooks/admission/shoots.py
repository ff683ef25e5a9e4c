"""Ranges of nodes of Shoots: those that this provider gives addresses from."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from webhooks import clusters
from webhooks.review import OLD_OBJECT, about
from webhooks.shapes import part
from windowbox.models import addresses, fielderrors
from windowbox.models.addresses import Network
from windowbox.models.objects import Json

_PATH = "spec.networking.nodes"

_OF_MACHINES: dict[int, Network] = {4: IPv4Network("10.0.0.0/16"), 6: IPv6Network("fd00:10:1:100::/56")}
_OF_HOST: dict[int, Network] = {4: IPv4Network("172.18.0.0/24"), 6: IPv6Network("fd00:10::/64")}
"""Where Gardener does not create machines, nodes are containers of the host's network."""


def errors(shoot: Json, old: Json | None) -> list[str]:
    """What is wrong with the range of nodes, unless the range is the old one."""
    nodes = part(shoot, "spec", "networking").get("nodes")
    if not clusters.workers(shoot):
        return []
    if old is not None:
        with about(OLD_OBJECT):
            stored = part(old, "spec", "networking").get("nodes")
        if stored == nodes:
            return []
    if nodes is None:
        return [fielderrors.required(_PATH, "nodes CIDR must not be empty")]
    network = addresses.prefix(nodes) if isinstance(nodes, str) else None
    if network is None:
        return [fielderrors.invalid(_PATH, nodes, "nodes CIDR must be a valid CIDR")]
    unmanaged = clusters.self_hosted(shoot) and not clusters.managed_infrastructure(shoot)
    wanted = (_OF_HOST if unmanaged else _OF_MACHINES)[network.version]
    if _is_within(network, wanted):
        return []
    return [fielderrors.invalid(_PATH, nodes, f"nodes CIDR must be a subnet of {wanted}")]


def _is_within(network: Network, wanted: Network) -> bool:
    return network.prefixlen >= wanted.prefixlen and network.network_address in wanted
