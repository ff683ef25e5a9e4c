"""Which ports a simulated node opens, and what it does there: the rules of kube-proxy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sandbox.simulated.objects import Node, Service, Slice

PROXY_HEALTH = 10256
"""The port at which kube-proxy reports whether the node accepts new connections."""


class Place(NamedTuple):
    """An address, a port and a protocol: unique among open ports."""

    address: str
    port: int
    protocol: str = "TCP"

    def __str__(self) -> str:
        return f"{self.address}:{self.port}/{self.protocol}"


@dataclass(frozen=True)
class Echo:
    """Greets, then echoes."""

    node: str


@dataclass(frozen=True)
class Drop:
    """Drops connections."""

    node: str


@dataclass(frozen=True)
class ServiceHealth:
    """Reports how many of a Service's endpoints the node has."""

    node: str
    namespace: str
    name: str
    endpoints: int


@dataclass(frozen=True)
class NodeHealth:
    """Reports whether the node accepts new connections."""

    node: str
    eligible: bool


OpenPort = Echo | Drop | ServiceHealth | NodeHealth
OpenPorts = dict[Place, OpenPort]


def of_node(node: Node) -> OpenPorts:
    """The open ports that a node has without any Service."""
    return _behaving(node, {Place(node.address, PROXY_HEALTH): NodeHealth(node.name, node.eligible)})


def of_service(service: Service, slices: Collection[Slice], nodes: Collection[Node]) -> OpenPorts:
    """The open ports of a Service on all nodes. A Service port without endpoints has none: it refuses."""
    open_ports: OpenPorts = {}
    served = []
    for port in service.ports:
        behind = [one for s in slices if (port.name, port.protocol) in s.ports for one in s.endpoints]
        # Without ready Pods, terminating ones that still serve count.
        if homes := {one.node for one in behind if one.ready or one.serving}:
            served.append((port, homes))
    for node in nodes:
        found: OpenPorts = {}
        for port, homes in served:
            # Policy Local does not forward to endpoints on other nodes.
            dropped = service.local and node.name not in homes
            place = Place(node.address, port.node_port, port.protocol)
            found[place] = Drop(node.name) if dropped else Echo(node.name)
        if service.health_port:
            place = Place(node.address, service.health_port)
            ready = sum(one.ready and one.node == node.name for part in slices for one in part.endpoints)
            found[place] = ServiceHealth(node.name, *service.key, ready)
        open_ports |= _behaving(node, found)
    return open_ports


def _behaving(node: Node, open_ports: OpenPorts) -> OpenPorts:
    """The open ports under the node's behaviour. A node that hangs keeps all, but does not answer."""
    match node.behaviour:
        case "refuse":
            return {}
        case "drop":
            return dict.fromkeys(open_ports, Drop(node.name))
        case _:
            return open_ports
