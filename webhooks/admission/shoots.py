"""Ranges of nodes of Shoots: those that this provider gives addresses from."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network

from webhooks import clusters
from webhooks.shapes import part
from windowbox.models import fielderrors
from windowbox.models.objects import Json

_PATH = "spec.networking.nodes"
_CIDR = re.compile(r"[0-9a-fA-F.:]{2,45}/[0-9]{1,3}", re.ASCII)
_Network = IPv4Network | IPv6Network

_OF_MACHINES: dict[int, _Network] = {4: IPv4Network("10.0.0.0/16"), 6: IPv6Network("fd00:10:1:100::/56")}
_OF_HOST: dict[int, _Network] = {4: IPv4Network("172.18.0.0/24"), 6: IPv6Network("fd00:10::/64")}
"""Where Gardener does not create machines, nodes are containers of the host's network."""


def errors(shoot: Json, old: Json | None) -> list[str]:
    """What is wrong with the range of nodes, unless the range is the old one."""
    nodes = part(shoot, "spec", "networking").get("nodes")
    if not clusters.workers(shoot):
        return []
    if old is not None and part(old, "spec", "networking").get("nodes") == nodes:
        return []
    if nodes is None:
        return [fielderrors.required(_PATH, "nodes CIDR must not be empty")]
    network = _network(nodes)
    if network is None:
        return [fielderrors.invalid(_PATH, nodes, "nodes CIDR must be a valid CIDR")]
    unmanaged = clusters.self_hosted(shoot) and not clusters.managed_infrastructure(shoot)
    wanted: _Network = (_OF_HOST if unmanaged else _OF_MACHINES)[network.version]
    if _is_within(network, wanted):
        return []
    return [fielderrors.invalid(_PATH, nodes, f"nodes CIDR must be a subnet of {wanted}")]


def _network(text: object) -> _Network | None:
    """The network that an address with a prefix is in; host bits are allowed."""
    if not isinstance(text, str) or not _CIDR.fullmatch(text):
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _is_within(network: _Network, wanted: _Network) -> bool:
    return network.prefixlen >= wanted.prefixlen and network.network_address in wanted
