"""The desired state of load balancers: values from which an Envoy configuration is rendered."""

from __future__ import annotations

import ipaddress
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
    unhealthy: bool = False
    """Health checks failed: it gets no traffic for now."""


@dataclass(frozen=True)
class Listener:
    """One address, port and protocol for clients."""

    address: str
    port: int
    protocol: Protocol
    endpoints: tuple[Endpoint, ...] = ()
    """Endpoints of the address's own family."""
    check: int | None = None
    """The port of Envoy's health checks (GET /healthz); None: Envoy does none, and `unhealthy` decides."""
    affinity: bool = False
    """Session affinity: a client keeps its endpoint."""
    allowed: tuple[str, ...] | None = None
    """The accepted source ranges of the address's own family; None: all."""
    proxy_protocol: Literal[1, 2] | None = None
    idle_timeout: float | None = None
    max_connections: int | None = None
    vacant: bool = False
    """No Pod is ready: connections are refused at once."""

    @property
    def place(self) -> str:
        """`80/TCP`, as people write it."""
        return f"{self.port}/{self.protocol}"

    @cached_property
    def name(self) -> str:
        """Its name in Envoy: no two listeners of an edge share an address, port and protocol."""
        return f"{self.protocol.lower()}_{self.address}_{self.port}"

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Rendered resources are cached by listener, and looked up for a thousand listeners at every change.
        return hash((self.address, self.port, self.protocol, self.endpoints, self.check, self.allowed))


@dataclass(frozen=True)
class LoadBalancer:
    """The listeners of one Service on the edge."""

    ref: ObjectRef
    uid: str
    listeners: tuple[Listener, ...]
    digest: str = field(default="", compare=False)
    """Hash of what the Service asks for: see `listeners.digest`."""
    addresses: tuple[str, ...] = ()
    """All addresses of the Service, with or without listeners."""
