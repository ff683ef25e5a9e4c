"""Nodes, Services and EndpointSlices as values, as far as the node simulator needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from windowbox.models.objects import Object

PLAYED = "kwok.x-k8s.io/node"
"""Label and annotation of a Node that no machine stands behind; its value is `fake`."""
BEHAVIOUR = "simulator.windowbox/behaviour"
"""The annotation that makes a simulated Node misbehave."""

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
    """Whether it may be given new connections: it is neither going away nor about to."""
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
