"""A Service's load balancer on the edge: its listeners, and the endpoints of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from windowbox.models.loadbalancers import KUBE_PROXY_PORT, Endpoint, Family, LoadBalancer, family
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.spec import fields, listeners
from workers.loadbalancer.spec.demands import Demand, Port


def load_balancer(
    ref: ObjectRef,
    demand: Demand,
    addresses: Mapping[Family, str],
    backends: Collection[Backend],
    slices: Iterable[Object] = (),
    conflicts: Collection[tuple[str, str]] = (),
) -> LoadBalancer:
    """The load balancer for `demand` at `addresses`; `slices` are the Service's known EndpointSlices.

    It gets no listener at `conflicts`: addresses and places (`80/TCP`) of Services that share its address.
    """
    pods = tuple(slices)
    nodes = sorted(backends, key=lambda node: node.name)
    # Either the edge checks all nodes, or Envoy does: it cannot check some endpoints of a cluster only.
    all_checked = demand.health_port == KUBE_PROXY_PORT and all(node.unhealthy is not None for node in nodes)
    # Computed once for all ports: there may be hundreds of both.
    targets = tuple(
        (address, node.name, all_checked and of in (node.unhealthy or ()))
        for node in nodes
        for of, address in node.addresses.items()
        if of in addresses
    )

    def endpoints(port: Port) -> tuple[tuple[Endpoint, ...], int | None]:
        """The endpoints of a port, and the port of Envoy's health checks of them."""
        if port.node_port is None:
            return endpoints_of(pods, port), None  # only ready Pods are among them
        number = port.node_port
        found = (Endpoint(address, number, name, unhealthy) for address, name, unhealthy in targets)
        return tuple(found), None if all_checked else demand.health_port

    by_place = {port.place: endpoints(port) for port in demand.ports}
    wanted = [
        one for one in listeners.listeners(demand, addresses) if (one.address, one.place) not in conflicts
    ]
    complete = []
    for one in wanted:
        of = family(one.address)
        found, check = by_place[one.place]
        mine = tuple(endpoint for endpoint in found if family(endpoint.address) == of)
        complete.append(replace(one, endpoints=mine, check=check, vacant=_vacant(pods, of)))
    return LoadBalancer(
        ref,
        demand.uid,
        tuple(complete),
        listeners.digest(demand.uid, wanted),
        tuple(addresses[of] for of in sorted(addresses)),
    )


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
