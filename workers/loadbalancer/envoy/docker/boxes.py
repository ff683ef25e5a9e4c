"""Containers for Envoys: names and labels that Gardener's scripts look for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windowbox.clients.docker import Container
from windowbox.models.refs import RUNTIME, ObjectRef
from workers.loadbalancer.envoy import bootstrap
from workers.loadbalancer.envoy.attachments import Order, Published

FOLDER = "/home/envoy"
"""Where the files are in a container."""

ROLE = "gardener.cloud/role"
SERVICE = "gardener.cloud/service"
CLUSTER = "kubernetes.io/cluster"
LOADBALANCER = "loadbalancer"

_PREFIX = "gardener-lb-"
_OWNER = "windowbox/owner"
_EDGE = "windowbox/edge"
_GENERATION = "windowbox/generation"


@dataclass(frozen=True)
class Household:
    """What all containers of one windowbox have in common."""

    image: str
    cluster: str
    """The name that Docker's labels and scripts have for the runtime cluster."""

    @property
    def labels(self) -> dict[str, str]:
        """By these our containers are told from those of others, who may use the same engine."""
        return {ROLE: LOADBALANCER, _OWNER: self.cluster}


def service_box(name: str) -> str:
    """The container of one Service's edge. Its ports are taken, so there is never a second generation."""
    return name if name.startswith(_PREFIX) else f"{_PREFIX}{_plain(name)}"


def shared_box(household: Household, name: str, generation: int) -> str:
    """The container of one generation of an edge."""
    if name.startswith(_PREFIX):
        return f"{name}-{generation}"
    return f"{_PREFIX}{_plain(household.cluster)}-{_plain(name)}-{generation}"


def network_box(household: Household) -> str:
    """The container that does nothing but have addresses and routes."""
    return f"{_PREFIX}{_plain(household.cluster)}-network"


def edge_labels(household: Household, name: str) -> dict[str, str]:
    """By these the Envoys of one edge are found."""
    return {**household.labels, _EDGE: name}


def edge_of(container: Container) -> str | None:
    return container.labels.get(_EDGE)


def generation_of(container: Container) -> int:
    return int(container.labels[_GENERATION])


def service_labels(service: ObjectRef, runtime: str) -> dict[str, str]:
    """The labels of an Envoy that one Service has for itself; `runtime` is the runtime cluster's name."""
    cluster = runtime if service.cluster == RUNTIME else service.cluster
    return {SERVICE: f"{service.namespace}/{service.name}", CLUSTER: cluster}


def envoy(household: Household, order: Order, *, command: Sequence[str] | None = None) -> dict[str, Any]:
    """A container with an Envoy, as far as it is the same for every attachment."""
    labels = {CLUSTER: household.cluster, **(order.labels or {}), **edge_labels(household, order.name)}
    argv = list(command or ["envoy", *bootstrap.arguments(FOLDER)])
    return {
        "Image": household.image,
        # Not the image's own entrypoint: that gives up root, and with it low ports and the files.
        "Entrypoint": argv[:1],
        "Cmd": argv[1:],
        "User": "0:0",
        "Labels": {**labels, _GENERATION: str(order.generation)},
        "HostConfig": {"RestartPolicy": {"Name": "on-failure"}, "LogConfig": _LOGS},
    }


def network(household: Household, docker_network: str, command: Sequence[str]) -> dict[str, Any]:
    """The container whose network the Envoys of a routed edge share."""
    return {
        "Image": household.image,
        "Entrypoint": list(command[:1]),
        "Cmd": list(command[1:]),
        "User": "0:0",
        "Labels": {CLUSTER: household.cluster, **household.labels},
        "HostConfig": {
            "RestartPolicy": {"Name": "on-failure"},
            "NetworkMode": docker_network,
            "CapAdd": ["NET_ADMIN"],
            "LogConfig": _LOGS,
        },
    }


def publishing(published: Iterable[Published]) -> dict[str, Any]:
    """Which ports a container has for the world: `ExposedPorts` and, for the host, `PortBindings`.

    Engines before 29 start a container whose ports are bound but not exposed, and publish nothing.
    """
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in published:
        binding = {"HostIp": port.address, "HostPort": str(port.port)}
        bindings.setdefault(f"{port.port}/{port.protocol.lower()}", []).append(binding)
    return {"ExposedPorts": {port: {} for port in bindings}, "PortBindings": bindings}


def mount(source: str) -> Mapping[str, str]:
    """A folder of the host as the container's folder. Refused by the engine if it is not there."""
    return {"Type": "bind", "Source": source, "Target": FOLDER}


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_.-]", "-", name)


_LOGS = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}}
