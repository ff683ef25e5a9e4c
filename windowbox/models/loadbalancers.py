"""The desired state of load balancers: values from which an Envoy configuration is rendered."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from windowbox.models.refs import ObjectRef

Family = Literal["IPv4", "IPv6"]
FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
"""In the order in which addresses are shown."""
Protocol = Literal["TCP", "UDP"]
KUBE_PROXY_PORT = 10256
"""Where kube-proxy answers health checks of its node."""


def family(address: str) -> Family:
    return "IPv6" if ":" in address else "IPv4"


def canonical(address: str) -> str:
    """The canonical text of an address, so that texts compare like addresses. ValueError if it is none."""
    return str(ipaddress.ip_address(address))


@dataclass(frozen=True)
class Endpoint:
    """A target of connections: a node's port, or a Pod's."""

    address: str
    port: int
    name: str
    """The name of the node or Pod, for people."""


@dataclass(frozen=True)
class Target:
    """A node at an address of one family. All Services of a cluster share its targets.

    Its health is no part of it: that changes often, and no load balancer with it.
    """

    address: str
    name: str
    """The name of the node."""


Targets = Mapping[Family, tuple[Target, ...]]
"""The nodes of a cluster, by the family of their addresses."""


@dataclass(frozen=True)
class Listener:
    """One address, port and protocol for clients."""

    address: str
    port: int
    protocol: Protocol
    endpoints: tuple[Endpoint, ...] = ()
    """Pods, of the address's own family, where traffic goes to no node port."""
    node_port: int | None = None
    """Traffic goes to this port of the targets of the load balancer."""
    check: int | None = None
    """The port of Envoy's health checks (GET /healthz); None: Envoy does none, and the edge does."""
    affinity: bool = False
    """Session affinity: a client keeps its endpoint."""
    allowed: tuple[str, ...] | None = None
    """The accepted source ranges of the address's own family; None: all."""
    proxy_protocol: Literal[1, 2] | None = None
    idle_timeout: float | None = None
    max_connections: int | None = None
    vacant: bool = False
    """No Pod is ready: connections are refused at once."""
    backends: Family | None = None
    """The family of its backends; None: that of its address."""
    hairpin: tuple[str, ...] | None = None
    """The nodes that may not reach themselves: one of as many of their TCP connections is closed at once."""

    @property
    def family(self) -> Family:
        """The family of its address."""
        return family(self.address)

    @property
    def behind(self) -> Family:
        """The family of its backends."""
        return self.backends or self.family

    @property
    def place(self) -> str:
        """`80/TCP`, as people write it."""
        return f"{self.port}/{self.protocol}"

    @cached_property
    def name(self) -> str:
        """Its name in Envoy: no two listeners of an edge share an address, port and protocol."""
        return f"{self.protocol.lower()}_{self.address}_{self.port}"


@dataclass(frozen=True)
class LoadBalancer:
    """The listeners of one Service on the edge. A change of a node changes its `targets` only."""

    ref: ObjectRef
    uid: str
    listeners: tuple[Listener, ...]
    targets: Targets = field(default_factory=dict, hash=False)
    """The nodes behind listeners with a node port."""
    digest: str = field(default="", compare=False)
    """Hash of what the Service asks for: see `listeners.digest`."""
    addresses: tuple[str, ...] = ()
    """All addresses of the Service, with or without listeners."""
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)
    """By place (`80/TCP`): why the edge serves no listener there."""

    @cached_property
    def listened(self) -> frozenset[str]:
        """The addresses of its listeners."""
        return frozenset(one.address for one in self.listeners)

    def targets_of(self, listener: Listener) -> tuple[Target, ...]:
        """The nodes behind one of its listeners; none if it has a list of Pods."""
        return () if listener.node_port is None else self.targets.get(listener.behind, ())

    def endpoints_of(self, listener: Listener) -> tuple[Endpoint, ...]:
        """The endpoints of one of its listeners, for people: Envoy's are rendered for all ports at once."""
        port = listener.node_port
        if port is None:
            return listener.endpoints
        return tuple(Endpoint(t.address, port, t.name) for t in self.targets_of(listener))
