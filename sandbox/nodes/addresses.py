"""Addresses of nodes and Pods: each sandbox has one subnet of the sandboxes' ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from windowbox.errors import Malformed

MOST_NODES = 16
_PART_V4, _PART_V6 = 20, 56
_PODS_V4, _PODS_V6 = 25, 64
_FIRST_NODE = 11


@dataclass(frozen=True)
class NodePlan:
    """The addresses of one node."""

    name: str
    v4: IPv4Address
    v6: IPv6Address
    pods_v4: IPv4Network
    pods_v6: IPv6Network

    @property
    def addresses(self) -> tuple[str, str]:
        return str(self.v4), str(self.v6)


@dataclass(frozen=True)
class Plan:
    """The addresses of one sandbox: nodes in the first 256, load balancers in the next, Pods in the upper
    half; those of simulated nodes in the second quarter, so that one network holds all."""

    v4: IPv4Network
    v6: IPv6Network
    names: tuple[str, ...]

    @property
    def nodes_v4(self) -> IPv4Network:
        return next(self.v4.subnets(new_prefix=24))

    @property
    def balancers_v4(self) -> IPv4Network:
        return list(self.v4.subnets(new_prefix=24))[1]

    @property
    def nodes_v6(self) -> IPv6Network:
        return next(self.v6.subnets(new_prefix=64))

    @property
    def host_v4(self) -> IPv4Address:
        """The address at which the nodes reach this host."""
        return self.nodes_v4[1]

    @property
    def host_v6(self) -> IPv6Address:
        return self.nodes_v6[1]

    @property
    def pods_v4(self) -> IPv4Network:
        return list(self.v4.subnets(1))[1]

    @property
    def pods_v6(self) -> IPv6Network:
        return list(self.v6.subnets(1))[1]

    @property
    def simulated_pods(self) -> IPv4Network:
        return list(self.v4.subnets(2))[1]

    @property
    def nodes(self) -> list[NodePlan]:
        pods_v4 = self.pods_v4.subnets(new_prefix=_PODS_V4)
        pods_v6 = self.pods_v6.subnets(new_prefix=_PODS_V6)
        return [
            NodePlan(name, self.nodes_v4[i], self.nodes_v6[i], next(pods_v4), next(pods_v6))
            for i, name in enumerate(self.names, start=_FIRST_NODE)
        ]


def names(count: int) -> tuple[str, ...]:
    if count > MOST_NODES:
        raise Malformed(
            f"{count} real nodes: a sandbox has {MOST_NODES} at most; simulated nodes have no limit"
        )
    return tuple(f"node-{i}" for i in range(1, count + 1))


def parts(ranges: tuple[str, str]) -> Iterator[tuple[IPv4Network, IPv6Network]]:
    """The pairs of IPv4 and IPv6 subnets, one pair for each sandbox."""
    try:
        v4, v6 = IPv4Network(ranges[0]), IPv6Network(ranges[1])
    except ValueError as error:
        raise Malformed(f"ranges for nodes: {error}: write one of IPv4 and one of IPv6") from error
    if v4.prefixlen > _PART_V4 or v6.prefixlen > _PART_V6:
        raise Malformed(f"{v4} and {v6}: a sandbox needs a /{_PART_V4} and a /{_PART_V6} for its nodes")
    # The wider range has subnets that are never used.
    return zip(v4.subnets(new_prefix=_PART_V4), v6.subnets(new_prefix=_PART_V6), strict=False)
