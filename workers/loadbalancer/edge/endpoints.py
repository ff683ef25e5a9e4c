"""A Service's load balancer on the edge: its listeners, and the endpoints of each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from ipaddress import collapse_addresses, ip_address, ip_network
from typing import Any

from windowbox.models.loadbalancers import (
    KUBE_PROXY_PORT,
    Endpoint,
    Family,
    LoadBalancer,
    Target,
    Targets,
    family,
)
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.spec import fields, listeners
from workers.loadbalancer.spec.demands import Demand, Port


class ClusterNodes:
    """The nodes of one cluster that get traffic. All its Services share them, with all their ports."""

    def __init__(self, backends: Iterable[Backend], *, checked: bool) -> None:
        """`checked`: the edge checks the health of the nodes."""
        self.backends = sorted(backends, key=lambda node: node.name)
        self._checked = checked
        found: dict[Family, list[Target]] = {}
        for node in self.backends:
            for of, address in node.addresses.items():
                found.setdefault(of, []).append(Target(address, node.name))
        self.targets: Targets = {of: tuple(targets) for of, targets in found.items()}

    def addresses(self, of: Family) -> tuple[str, ...]:
        """The addresses of this family."""
        return tuple(sorted(target.address for target in self.targets.get(of, ())))

    def check(self, health_port: int) -> int | None:
        """The port that Envoy checks on each node; None if the edge checks the nodes."""
        # Either the edge checks all nodes, or Envoy does: it cannot check some endpoints of a cluster only.
        return None if self._checked and health_port == KUBE_PROXY_PORT else health_port


def load_balancer(
    ref: ObjectRef,
    demand: Demand,
    addresses: Mapping[Family, str],
    nodes: ClusterNodes,
    slices: Iterable[Object] = (),
    conflicts: Collection[tuple[str, str]] = (),
) -> LoadBalancer:
    """The load balancer for `demand` at `addresses`; `slices` are the Service's known EndpointSlices.

    It gets no listener at `conflicts`: addresses and places (`80/TCP`) of Services that share its address.
    """
    pods = tuple(slices)
    check = nodes.check(demand.health_port)
    by_place = {port.place: (port, _endpoints(pods, port)) for port in demand.ports}
    wanted = listeners.listeners(demand, addresses)
    if conflicts:
        wanted = tuple(one for one in wanted if (one.address, one.place) not in conflicts)
    vacant = {of: _vacant(pods, of) for of in {one.behind for one in wanted}}
    complete = []
    for one in wanted:
        of = one.behind
        port, found = by_place[one.place]
        complete.append(
            replace(
                one,
                endpoints=tuple(endpoint for endpoint in found if family(endpoint.address) == of),
                node_port=port.node_port,
                check=None if port.node_port is None else check,  # only ready Pods are endpoints
                vacant=vacant[of],
                hairpin=None if one.hairpin is None else _admitted(nodes.addresses(one.family), one.allowed),
            )
        )
    return LoadBalancer(
        ref,
        demand.uid,
        tuple(complete),
        nodes.targets,
        listeners.digest(demand.uid, wanted),
        tuple(addresses[of] for of in sorted(addresses)),
    )


@lru_cache(maxsize=64)
def _admitted(addresses: tuple[str, ...], allowed: tuple[str, ...] | None) -> tuple[str, ...]:
    """The addresses in the allowed prefixes. Cached: all listeners of a Service have the same."""
    if allowed is None:
        return addresses
    found: list[Any] = [ip_network(prefix) for prefix in allowed]
    networks = list(collapse_addresses(found))
    starts = [int(network.network_address) for network in networks]

    def admits(address: str) -> bool:
        found = ip_address(address)
        at = bisect_right(starts, int(found))
        return at > 0 and found in networks[at - 1]

    return tuple(filter(admits, addresses))


def refused(
    ref: ObjectRef, demand: Demand, addresses: Mapping[Family, str], nodes: ClusterNodes, why: str
) -> LoadBalancer:
    """The load balancer of a Service that is not served: it has addresses, but no listeners."""
    return LoadBalancer(
        ref,
        demand.uid,
        (),
        nodes.targets,
        listeners.digest(demand.uid, listeners.listeners(demand, addresses)),
        tuple(addresses[of] for of in sorted(addresses)),
        dict.fromkeys(demand.places, why),
    )


def size(demand: Demand, addresses: Iterable[Family], nodes: ClusterNodes, slices: Iterable[Object]) -> int:
    """The most endpoints that the load balancer may have: ports times nodes, or Pods."""
    of_nodes = sum(port.node_port is not None for port in demand.ports)
    of_pods = len(demand.ports) - of_nodes
    pods = sum(len(fields.items(one.raw.get("endpoints"))) for one in slices) if of_pods else 0
    behind = (demand.backends or of for of in addresses)
    return of_nodes * sum(len(nodes.targets.get(of, ())) for of in behind) + of_pods * pods


def _endpoints(slices: Collection[Object], port: Port) -> tuple[Endpoint, ...]:
    return endpoints_of(slices, port) if port.node_port is None else ()


def endpoints_of(slices: Iterable[Object], port: Port) -> tuple[Endpoint, ...]:
    """The endpoints of `port`: ready Pods of both families, each once."""
    found: set[Endpoint] = set()
    for slice in (slice for slice in slices if not slice.deleting):
        # A slice names the ports of Pods by the names of the Service's ports.
        numbers = [
            fields.port_number(one.get("port"))
            for one in fields.mappings(slice.raw.get("ports"))
            if fields.text(one.get("name")) == port.name and (one.get("protocol") or "TCP") == port.protocol
        ]
        for entry in fields.mappings(slice.raw.get("endpoints")):
            # Only the first address counts: all lead to the same Pod, as the API says. It may be a host name.
            address = fields.address(next(iter(fields.items(entry.get("addresses"))), None))
            # An unknown condition counts as ready.
            ready = mapping(entry.get("conditions")).get("ready") is not False
            if address is not None and ready and family(address) == slice.raw.get("addressType"):
                name = fields.text(mapping(entry.get("targetRef")).get("name")) or address
                found |= {Endpoint(address, number, name) for number in numbers if number}
    return tuple(sorted(found, key=lambda one: (family(one.address), one.address, one.port, one.name)))


def _vacant(slices: Iterable[Object], of: Family) -> bool:
    """Whether it is known that there are no Pods.

    Nodes then refuse connections, but only one a second for each client: most clients of a busy Service would
    wait until they time out.
    """
    known = [one for one in slices if one.raw.get("addressType") == of and not one.deleting]
    pods = (pod for slice in known for pod in fields.mappings(slice.raw.get("endpoints")))
    conditions = (mapping(pod.get("conditions")) for pod in pods)
    # If no Pod is ready, kube-proxy uses Pods that terminate but serve.
    return bool(known) and not any(
        one.get("ready") is not False or one.get("serving") is True for one in conditions
    )
