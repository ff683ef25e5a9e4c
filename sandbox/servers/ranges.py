"""Address ranges of a sandbox's Services and simulated Pods.

Services keep their addresses in the sandbox's data, so the ranges are stored with the data, independent of
its nodes' subnets. No other sandbox uses them, because this host routes them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path

from sandbox import files
from windowbox.errors import Malformed
from windowbox.models.addresses import Network

_NOBODY = "http://127.0.0.1:1"
_RESERVED = IPv4Network("240.0.0.0/4")
"""Reserved (RFC 1112), so no other network uses it. Linux routes it nevertheless."""
_PARTS = 15 * 128
"""All of it but 255.0.0.0/8, in which broadcasts are."""
_VPNS = 5 * 128
"""The first parts, 240.0.0.0 to 244.255.255.255, are those that VPNs of Gardener map networks to."""
_PARTS_V6 = int(IPv6Network("fd77:6e64:6278:f000::/64").network_address)


@dataclass(frozen=True)
class Ranges:
    """Address ranges that are valid inside of one cluster only."""

    services_v4: IPv4Network
    services_v6: IPv6Network
    pods: IPv4Network
    """Of simulated nodes. Nothing answers there."""
    balancers: IPv6Network
    """Of load balancers, which have addresses of loopback in IPv4."""
    routable: bool = True
    """Whether no other sandbox has them."""

    @property
    def name_server(self) -> IPv4Address:
        """The address of the Service of the cluster's name server, as kubeadm chooses it."""
        return self.services_v4[10]

    @property
    def networks(self) -> list[Network]:
        return [self.services_v4, self.services_v6, self.pods, self.balancers]


EARLIER = Ranges(
    services_v4=IPv4Network("10.2.0.0/16"),
    services_v6=IPv6Network("fd77:6e64:6278:ffff::/112"),
    pods=IPv4Network("10.64.0.0/12"),
    balancers=IPv6Network("fd77:6e64:6278:ffff:1::/120"),
    routable=False,
)
"""The ranges of sandboxes of earlier versions. The network of this host may use them."""


def part(number: int) -> Ranges:
    """One subnet of each of the ranges for all sandboxes."""
    v4, pods = (
        IPv4Network((int(_RESERVED.network_address) + ((2 * number + half) << 16), 16)) for half in (0, 1)
    )
    v6 = _PARTS_V6 + (number << 64)
    return Ranges(v4, IPv6Network((v6, 112)), pods, IPv6Network((v6 + (1 << 48), 120)))


def kept(folder: Path, routes: list[Network]) -> Ranges:
    """The stored ranges of the sandbox in `folder`; at first, some that overlap none of `routes`."""
    file = folder / "ranges.json"
    if file.exists():
        try:
            return part(int(json.loads(file.read_bytes())["part"]) % _PARTS)
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(f"{file}: {error}: `windowbox down --wipe`, then start again") from error
    if (folder / "etcd").exists():
        return EARLIER
    # At random: sandboxes that do not run at the same time get different ranges, too.
    numbers = random.sample(range(_VPNS, _PARTS), _PARTS - _VPNS)
    free = (n for n in numbers if not any(overlapping(one, routes) for one in part(n).networks))
    number = next(free, numbers[0])
    files.write(file, json.dumps({"part": number}))
    return part(number)


def overlapping(network: Network, routes: list[Network]) -> list[Network]:
    """Those of `routes` that overlap `network`, except default routes."""
    return [
        route
        for route in routes
        if route.prefixlen and type(route) is type(network) and network.overlaps(route)
    ]


@dataclass(frozen=True)
class ClusterNetwork:
    """The addresses inside, and whether this host has routes for them."""

    ranges: Ranges
    nodes: Sequence[Network] = ()
    routed: bool = False
    v6: bool = False
    """Whether this host's loopback has IPv6."""

    def environment(self) -> dict[str, str]:
        """Variables that let an API server without routes connect to loopback and its nodes only.

        Other connections go to a proxy that refuses them.
        """
        if self.routed:
            return {}
        return {"HTTP_PROXY": _NOBODY, "HTTPS_PROXY": _NOBODY, "NO_PROXY": ",".join(map(str, self.nodes))}


UNROUTED = ClusterNetwork(part(0))
"""For an API server without a sandbox around it."""
