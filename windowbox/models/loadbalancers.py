"""What load balancers ought to be: plain values, from which an Envoy's configuration is made."""

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
    """One spelling for each address, so that texts compare like addresses. ValueError if it is none."""
    return str(ipaddress.ip_address(address))


@dataclass(frozen=True)
class Endpoint:
    """Where connections are sent: a node's port, or a Pod's."""

    address: str
    port: int
    name: str
    """The node, or the Pod, for people."""
    unhealthy: bool = False
    """Whether it is to get no traffic for now."""


@dataclass(frozen=True)
class Listener:
    """One address and port on which clients arrive."""

    address: str
    port: int
    protocol: Protocol
    endpoints: tuple[Endpoint, ...] = ()
    """Of the address's own family."""
    check: int | None = None
    """The port of Envoy's health checks (GET /healthz); None: Envoy does none, and `unhealthy` decides."""
    affinity: bool = False
    """Whether a client stays with the endpoint it had before."""
    allowed: tuple[str, ...] | None = None
    """The prefixes, of the address's own family, that clients may come from; None: everywhere."""
    proxy_protocol: Literal[1, 2] | None = None
    idle_timeout: float | None = None
    max_connections: int | None = None
    vacant: bool = False
    """Whether nobody is behind the endpoints at present: clients are turned away at once."""

    @property
    def place(self) -> str:
        """`80/TCP`, as people write it."""
        return f"{self.port}/{self.protocol}"

    @cached_property
    def name(self) -> str:
        """What it is called in Envoy: no two listeners of an edge share an address, port and protocol."""
        return f"{self.protocol.lower()}_{self.address}_{self.port}"

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # What is made of listeners is kept by them, and looked up for a thousand of them at every change.
        return hash((self.address, self.port, self.protocol, self.endpoints, self.check, self.allowed))


@dataclass(frozen=True)
class LoadBalancer:
    """All that one Service asks of an edge."""

    ref: ObjectRef
    uid: str
    listeners: tuple[Listener, ...]
    digest: str = field(default="", compare=False)
    """Of what the Service asks for: see `listeners.digest`."""
    addresses: tuple[str, ...] = ()
    """Those that are allocated to the Service, with or without listeners."""
