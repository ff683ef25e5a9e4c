"""Which ports simulated nodes open, and what answers there: the rules of kube-proxy.

First the Nodes, Services and EndpointSlices that decide it, as values; then the ports.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from windowbox.models.objects import Object

PLAYED = "kwok.x-k8s.io/node"
"""Label and annotation of a Node that no machine stands behind; its value is `fake`."""
BEHAVIOUR = "simulator.windowbox/behaviour"
"""The annotation that makes a simulated Node misbehave."""
PROXY_HEALTH = 10256
"""The port at which kube-proxy reports whether the node accepts new connections."""

Behaviour = Literal["serve", "hang", "refuse", "drop"]

_DRAINING = "ToBeDeletedByClusterAutoscaler"
_SERVICE_NAME = "kubernetes.io/service-name"


class Key(NamedTuple):
    """A Service's namespace and name."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Node:
    """A simulated Node, and how it behaves."""

    name: str
    address: str
    eligible: bool = True
    """Whether it accepts new connections: it is neither deleted nor about to be removed."""
    behaviour: Behaviour = "serve"


class Port(NamedTuple):
    """A port of a Service: its name, node port and protocol."""

    name: str
    protocol: str
    node_port: int


@dataclass(frozen=True)
class Service:
    """A Service for which nodes listen."""

    key: Key
    ports: tuple[Port, ...]
    local: bool = False
    """Each node sends only to endpoints of its own."""
    health_port: int = 0


class Endpoint(NamedTuple):
    """One Pod: its node, and whether it serves, also while it terminates."""

    node: str
    ready: bool
    serving: bool


@dataclass(frozen=True)
class Slice:
    """Some of a Service's endpoints."""

    service: Key
    ports: frozenset[tuple[str, str]]
    """Name and protocol of each."""
    endpoints: tuple[Endpoint, ...]


def node(object: Object) -> Node | None:
    """The Node, if it is simulated and has an address of this machine."""
    if object.labels.get(PLAYED) != "fake":
        return None
    listed = object.status.get("addresses") or ()
    addresses = [a["address"] for a in listed if a.get("type") == "InternalIP"]
    loopback = [address for address in addresses if address.startswith("127.")]
    if not loopback:
        return None
    tainted = any(taint.get("key") == _DRAINING for taint in object.spec.get("taints") or ())
    wanted = object.annotations.get(BEHAVIOUR)
    known: tuple[Behaviour, ...] = get_args(Behaviour)
    behaviour: Behaviour = next((one for one in known if one == wanted), "serve")
    return Node(object.name, loopback[0], not (tainted or object.deleting), behaviour)


def service(object: Object) -> Service | None:
    """The Service, if nodes listen for it on IPv4: simulated nodes have no other addresses."""
    spec = object.spec
    ports = tuple(
        Port(port.get("name") or "", port.get("protocol") or "TCP", port["nodePort"])
        for port in spec.get("ports") or ()
        if port.get("nodePort")
    )
    if not ports or "IPv4" not in spec.get("ipFamilies", ["IPv4"]):
        return None
    local = spec.get("externalTrafficPolicy") == "Local"
    key = Key(object.namespace, object.name)
    return Service(key, ports, local, spec.get("healthCheckNodePort") or 0 if local else 0)


def endpoint_slice(object: Object) -> Slice | None:
    """The EndpointSlice, if it belongs to a Service and is one of IPv4."""
    name = object.labels.get(_SERVICE_NAME)
    if not name or object.raw.get("addressType") != "IPv4":
        return None
    ports = ((p.get("name") or "", p.get("protocol") or "TCP") for p in object.raw.get("ports") or ())
    endpoints = []
    for one in object.raw.get("endpoints") or ():
        conditions = one.get("conditions") or {}
        ready = conditions.get("ready") is not False  # an absent condition means true
        serving = conditions.get("serving")
        endpoints.append(
            Endpoint(one.get("nodeName") or "", ready, ready if serving is None else bool(serving))
        )
    return Slice(Key(object.namespace, str(name)), frozenset(ports), tuple(endpoints))


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
