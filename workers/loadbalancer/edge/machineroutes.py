"""Routes to nodes that run in Pods, via each Pod's host. Rules LB-10-* (docs/contract-coverage.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from bus.clusters.registry import MachinePlace, Registry
from bus.transport.connection import Bus
from bus.views import View
from windowbox.models.loadbalancers import Family, family
from windowbox.models.objects import Object
from windowbox.models.refs import PODS, RUNTIME, ObjectRef
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.spec import fields

logger = logging.getLogger(__name__)

_ENDED = frozenset({"Succeeded", "Failed"})


class Node(NamedTuple):
    """A node of a cluster."""

    cluster: str
    name: str

    def __str__(self) -> str:
        return f"node {self.name} of cluster {self.cluster}"


@dataclass(frozen=True)
class NodeRoutes:
    """The routes to nodes."""

    routes: Mapping[str, str]
    """Prefix → next hop."""
    missing: Mapping[Node, str]
    """Nodes without a route, and why. The reason follows the node in a sentence."""


Hosts = Mapping[Family, str]


class Machine(NamedTuple):
    """A running machine Pod."""

    hosts: Hosts
    own: frozenset[str]
    """The Pod's own addresses."""


def machine(pod: Object) -> Machine | None:
    """The addresses of a machine Pod and of its host; None if it does not run."""

    def addresses(several: str, single: str) -> list[str]:
        texts = [entry.get("ip") for entry in fields.mappings(pod.status.get(several))]
        texts.append(pod.status.get(single))
        return [address for text in texts if (address := fields.address(text)) is not None]

    hosts: dict[Family, str] = {}
    for address in addresses("hostIPs", "hostIP"):
        hosts.setdefault(family(address), address)
    if not hosts or fields.text(pod.status.get("phase")) in _ENDED:
        return None
    return Machine(hosts, frozenset(addresses("podIPs", "podIP")))


def node_routes(
    nodes: Mapping[str, Iterable[Backend]],
    places: Mapping[str, MachinePlace],
    machine: Callable[[MachinePlace, str], Hosts | None],
) -> NodeRoutes:
    """The routes to `nodes` (by cluster) whose cluster has machine Pods, at `places`."""
    routes: dict[str, str] = {}
    missing: dict[Node, str] = {}
    for cluster in sorted(nodes.keys() & places.keys()):
        place = places[cluster]
        for backend in sorted(nodes[cluster], key=lambda node: node.name):
            node, found = Node(cluster, backend.name), machine(place, backend.name)
            if found is None:
                missing[node] = f"has no machine Pod {place.namespace}/{backend.name} that runs on a host"
                continue
            for of, address in sorted(backend.addresses.items()):
                if why := _add(routes, address, found.get(of)):
                    missing[node] = why
    return NodeRoutes(routes, missing)


def _add(routes: dict[str, str], address: str, via: str | None) -> str | None:
    """Add the route to `address`, or return why there is none."""
    if via is None:
        return f"has the address {address}, but the host of its machine Pod has none of this family"
    if address == via or ip_address(address).is_loopback:
        return f"calls {address} its own, which is no address of a machine Pod"
    prefix = f"{address}/{ip_address(address).max_prefixlen}"
    # One prefix has one route: a cluster must not attract the traffic of another.
    if routes.setdefault(prefix, via) != via:
        return f"calls {address} its own, as another node does that is reached through another host"
    return None


class Machines:
    """The hosts of the machine Pods of all clusters."""

    def __init__(
        self, bus: Bus, registry: Registry, changed: Callable[[], None], runtime: MachinePlace | None = None
    ) -> None:
        self._registry = registry
        self._runtime = runtime
        self._pods: View[Machine] = View(
            bus,
            PODS.id,
            lambda _, pod: None if pod.labels.get("app") == "bastion" else machine(pod),
            changed=changed,
        )
        self._last: dict[ObjectRef, Machine] = {}
        self._used: set[ObjectRef] = set()
        self._logged: Mapping[Node, str] = {}

    async def run(self) -> None:
        """Follow the machine Pods; never returns."""
        await self._pods.run()

    async def complete(self) -> None:
        """Wait until all Pods that the bus held at the start have been read."""
        await self._pods.complete.wait()

    def routes(self, nodes: Mapping[str, Iterable[Backend]]) -> Mapping[str, str]:
        """Prefix → next hop, for the nodes in use, by cluster."""
        places = {cluster: place for cluster in nodes if (place := self.place(cluster))}

        def hosts(place: MachinePlace, name: str) -> Hosts | None:
            machine = self._machine(place, name)
            return machine.hosts if machine else None

        found = node_routes(nodes, places, hosts)
        # Each machine has a new name: those that are gone would be remembered for ever.
        used, self._used = self._used, set()
        self._last = {
            ref: machine
            for ref, machine in self._last.items()
            if ref in used or ref.cluster not in self._pods.listed
        }
        new = [f"{node}: it {why}" for node, why in found.missing.items() if self._logged.get(node) != why]
        if new:
            logger.warning("no route to %s", fields.listed(new))
        self._logged = dict(found.missing)
        return found.routes

    def place(self, cluster: str) -> MachinePlace | None:
        """Cluster and namespace of the machines; None if the cluster's nodes are no Pods."""
        if cluster == RUNTIME:
            return self._runtime
        member = self._registry.members.get(cluster)
        return member.machines if member else None

    def unlisted(self, cluster: str) -> bool:
        """Whether the bus may have lost machines of the cluster."""
        place = self.place(cluster)
        return place is not None and place.cluster not in self._pods.listed

    def known(self, node: Node) -> bool:
        """Whether the node's machine is known, or was until the bus lost it."""
        place = self.place(node.cluster)
        return place is not None and self._machine(place, node.name) is not None

    def disowned(self, node: Node, address: str) -> str:
        """Why the address is not that of the node's machine; empty if it is."""
        place = self.place(node.cluster)
        assert place is not None
        found = self._machine(place, node.name)
        if found is None:
            return f"it has no machine Pod {place.namespace}/{node.name} that runs on a host"
        if address not in found.own:
            return f"{address} is no address of its machine Pod {place.namespace}/{node.name}"
        return ""

    def _machine(self, place: MachinePlace, name: str) -> Machine | None:
        ref = ObjectRef(place.cluster, PODS.id, place.namespace, name)
        self._used.add(ref)
        found = self._pods.get(ref)
        if found is not None:
            self._last[ref] = found
        elif place.cluster in self._pods.listed:
            self._last.pop(ref, None)
        # If the bus has lost the Pod, its last host counts.
        return self._last.get(ref)
