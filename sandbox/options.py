"""Options of a sandbox."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

TOGETHER = {"runners": 1, "watchers": 0, "workers": 0, "patchers": 0}
"""Watching, working and patching as one process, in place of one for each."""


class Options(BaseModel, frozen=True, extra="forbid"):
    """The processes and nodes that a sandbox runs."""

    runners: int = Field(default=0, ge=0)
    """How many processes watch, work and patch, in place of one for each."""
    watchers: int = Field(default=1, ge=0)
    workers: int = Field(default=1, ge=0)
    patchers: int = Field(default=1, ge=0)
    admits: int = Field(default=0, ge=0)
    """How many processes answer webhooks. Without one, the API server calls no webhook."""
    garden_admits: int = Field(default=0, ge=0)
    """How many processes are the admission of a garden, whose API server is the sandbox's own."""
    uis: int = Field(default=0, ge=0, le=1)
    """How many processes serve the page that shows the sandbox at work."""
    webhook_spread: float = 120.0
    """Seconds for which a new authority of webhooks is trusted before it signs."""
    nats_servers: Literal[1, 3] = 1
    """NATS servers of the bus: one, or three with copies of every stream."""
    nodes: int = Field(default=0, ge=0)
    """How many real nodes; they need Linux and root."""
    simulated_nodes: int = Field(default=0, ge=0, le=254)
    """How many nodes without machines, simulated by kwok and the node simulator."""
    ranges: tuple[str, str] = ("198.18.0.0/15", "fd77:6e64:6278::/48")
    """Where the addresses of nodes and Pods come from, IPv4 and IPv6; each sandbox takes a part.

    The former is reserved for tests between devices (RFC 2544), so no network should use it."""
    addresses: tuple[str, ...] = ()
    """Prefixes for load balancers; by default a part of the loopback addresses that no other sandbox has."""
    reachable_balancers: bool = False
    """Give load balancers addresses that Pods can reach, too: of the part for nodes, in place of loopback."""
    kinds: tuple[str, ...] = ()
    """The kinds that are watched, as plural.group, if another windowbox serves the others; by default all."""
    audit: bool = False
    """Write a line about each request to the API server, for benchmarks that count them."""
    apiserver_arguments: tuple[str, ...] = ()
    sync_interval: str = "2m"
    """How often NATS writes to disk what it acknowledged: a duration, or `always`."""
    dns_key: bool = True
    """Take updates of the zone only if they are signed. Gardener's own set-up accepts unsigned ones."""
    dns_ownership: str = ""
    """Mark records in the zone as those of this owner; by default they are not marked."""
    companions: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Command lines by name of more processes, which run as long as the sandbox does."""
    registry_port: int = Field(default=0, ge=0, le=65535)
    """The port, at the address of this host among the nodes, of a registry that has the images of all others.

    Without one, nodes have the images that the sandbox gives them."""
    servers: str = ""
    """The address of that registry, and of the name server of nodes, if they are those of another sandbox."""
    cluster_dns: bool = False
    """Let Pods ask the name server at the tenth address of Services, which somebody has to deploy."""
    shared_folders: tuple[str, ...] = ()
    """Folders that all nodes share, and that exist nowhere else: for volumes of the type `hostPath`."""
    shared_from: str = ""
    """The folder in which these are; by default `shared` in the data of the sandbox."""
    pods_v6: bool = True
    """Give Pods of real nodes an address of IPv6, too. Programs of clusters without IPv6 may choose it."""
    awaited: tuple[str, ...] = ()
    """Programs that are still being installed. Their processes start once they are there."""
    ports: dict[str, int] = Field(default_factory=dict)
    """Fixed ports by the name of the child; the system chooses the others."""
