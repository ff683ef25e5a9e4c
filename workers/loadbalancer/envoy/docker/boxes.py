"""Containers for Envoys: names and labels that Gardener's scripts look for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windowbox.models.refs import RUNTIME, ObjectRef
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.launcher import commandline

if TYPE_CHECKING:
    from windowbox.clients.docker import Container  # edges without Docker use the labels, too

FOLDER = "/home/envoy"
"""The folder of the files in a container."""
DISCOVERY = "/run/windowbox"
"""The folder of the socket from which an Envoy in a container gets its resources."""

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
    """The properties that all containers of one windowbox share."""

    image: str
    cluster: str
    """The runtime cluster's name in Docker's labels and in scripts."""

    @property
    def labels(self) -> dict[str, str]:
        """Distinguish our containers from others on the same engine."""
        return {ROLE: LOADBALANCER, _OWNER: self.cluster}


def service_box(name: str) -> str:
    """The container of one Service's edge. It holds the ports, so there is never a second generation."""
    return name if name.startswith(_PREFIX) else f"{_PREFIX}{_plain(name)}"


def shared_box(household: Household, name: str, generation: int) -> str:
    """The container of one generation of an edge."""
    if name.startswith(_PREFIX):
        return f"{name}-{generation}"
    return f"{_PREFIX}{_plain(household.cluster)}-{_plain(name)}-{generation}"


def network_box(household: Household) -> str:
    """The container that has addresses and routes, and no program but `sleep`."""
    return f"{_PREFIX}{_plain(household.cluster)}-network"


def edge_labels(household: Household, name: str) -> dict[str, str]:
    """Labels that select the Envoys of one edge."""
    return {**household.labels, _EDGE: name}


def edge_of(container: Container) -> str | None:
    return container.labels.get(_EDGE)


def generation_of(container: Container) -> int:
    return int(container.labels[_GENERATION])


def service_labels(service: ObjectRef, runtime: str) -> dict[str, str]:
    """Labels for the Envoy of a single Service; `runtime` is the runtime cluster's name."""
    cluster = runtime if service.cluster == RUNTIME else service.cluster
    return {SERVICE: f"{service.namespace}/{service.name}", CLUSTER: cluster}


def envoy(household: Household, order: Order, *, command: Sequence[str] | None = None) -> dict[str, Any]:
    """A container with an Envoy; each attachment adds its network."""
    labels = {CLUSTER: household.cluster, **(order.labels or {}), **edge_labels(household, order.name)}
    labels[_GENERATION] = str(order.generation)
    return _body(household, command or ["envoy", *commandline.arguments(FOLDER)], labels)


def network(household: Household, docker_network: str, command: Sequence[str]) -> dict[str, Any]:
    """The container whose network the Envoys of a routed edge share."""
    body = _body(household, command, {CLUSTER: household.cluster, **household.labels})
    body["HostConfig"] |= {"NetworkMode": docker_network, "CapAdd": ["NET_ADMIN"]}
    return body


def _body(household: Household, command: Sequence[str], labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "Image": household.image,
        # The image's own entrypoint drops root, and with it low ports and access to the files.
        "Entrypoint": list(command[:1]),
        "Cmd": list(command[1:]),
        "User": "0:0",
        "Labels": labels,
        "HostConfig": {
            # The engine restarts a crashed Envoy, also while windowbox is down.
            "RestartPolicy": {"Name": "on-failure"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}},
        },
    }


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_.-]", "-", name)
