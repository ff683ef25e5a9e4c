"""What the edge serves for a Service: listeners and their endpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from windowbox.models.loadbalancers import KUBE_PROXY_PORT, Endpoint, Family, Listener, LoadBalancer, family
from windowbox.models.objects import Json, Object, mapping
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.edge.nodes import Backend
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
    """What `demand` comes to at `addresses`; `slices` are the Service's EndpointSlices, as far as they are
    known. It gets no listener at `conflicts`: addresses and places (`80/TCP`) of others who share them.
    """
    wanted = [
        one for one in listeners.listeners(demand, addresses) if (one.address, one.place) not in conflicts
    ]
    pods = tuple(slices)
    nodes = _nodes(demand, backends, addresses)
    by_place = {port.place: _endpoints(port, nodes, pods) for port in demand.ports}
    return LoadBalancer(
        ref,
        demand.uid,
        tuple(_with_endpoints(one, *by_place[one.place], pods) for one in wanted),
        listeners.digest(demand.uid, wanted),
        tuple(addresses[of] for of in sorted(addresses)),
    )


def box_name(uid: str) -> str:
    """The name of a Service's own Envoy, by which Gardener's scripts know it."""
    return f"gardener-lb-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


def endpoints_of(slices: Iterable[Object], port: Port) -> tuple[Endpoint, ...]:
    """The endpoints of `port`: Pods that are ready, of both families, each once."""
    found = {
        endpoint
        for slice in slices
        if not slice.deleting
        for number in _numbers(slice, port)
        for endpoint in _ready(slice, number)
    }
    return tuple(sorted(found, key=lambda one: (family(one.address), one.address, one.port, one.name)))


class _Nodes(NamedTuple):
    """The nodes, as all ports of a Service have them. There may be hundreds of both."""

    addresses: tuple[tuple[str, str, bool], ...]
    """Address and name of each, and whether it is unhealthy."""
    check: int | None
    """The port of Envoy's health checks."""


def _nodes(demand: Demand, backends: Collection[Backend], families: Collection[Family]) -> _Nodes:
    nodes = sorted(backends, key=lambda node: node.name)
    all_checked = demand.health_port == KUBE_PROXY_PORT and all(node.unhealthy is not None for node in nodes)
    found = (
        (address, node.name, all_checked and of in (node.unhealthy or ()))
        for node in nodes
        for of, address in node.addresses.items()
        if of in families
    )
    return _Nodes(tuple(found), None if all_checked else demand.health_port)


def _endpoints(
    port: Port, nodes: _Nodes, slices: Iterable[Object]
) -> tuple[tuple[Endpoint, ...], int | None]:
    """The endpoints of a port, and the port of Envoy's health checks of them."""
    if port.node_port is None:
        return endpoints_of(slices, port), None  # only Pods that are ready are among them
    number = port.node_port
    endpoints = (Endpoint(address, number, name, unhealthy) for address, name, unhealthy in nodes.addresses)
    return tuple(endpoints), nodes.check


def _with_endpoints(
    listener: Listener, endpoints: Iterable[Endpoint], check: int | None, pods: Iterable[Object]
) -> Listener:
    of = family(listener.address)
    mine = tuple(endpoint for endpoint in endpoints if family(endpoint.address) == of)
    return replace(listener, endpoints=mine, check=check, vacant=_vacant(pods, of))


def _vacant(slices: Iterable[Object], of: Family) -> bool:
    """Whether it is known that there are no Pods.

    Nodes then refuse connections, but only one a second for each client: most clients of a busy Service would
    wait until they time out.
    """
    known = [one for one in slices if one.raw.get("addressType") == of and not one.deleting]
    pods = (pod for slice in known for pod in fields.mappings(slice.raw.get("endpoints")))
    return bool(known) and not any(_serves(mapping(pod.get("conditions"))) for pod in pods)


def _serves(conditions: Json) -> bool:
    # If no Pod is ready, kube-proxy uses those that terminate but serve.
    return conditions.get("ready") is not False or conditions.get("serving") is True


def _numbers(slice: Object, port: Port) -> list[int]:
    """The ports of the Pods that have the name of the Service's port."""
    named = fields.mappings(slice.raw.get("ports"))
    mine = [
        one
        for one in named
        if fields.text(one.get("name")) == port.name and (one.get("protocol") or "TCP") == port.protocol
    ]
    numbers = (fields.port_number(one.get("port")) for one in mine)
    return [number for number in numbers if number is not None]


def _ready(slice: Object, port: int) -> Iterable[Endpoint]:
    for entry in fields.mappings(slice.raw.get("endpoints")):
        # Only the first address counts: the API says that all lead to the same Pod. A host name is none.
        address = fields.address(next(iter(fields.items(entry.get("addresses"))), None))
        # Unknown counts as ready.
        ready = mapping(entry.get("conditions")).get("ready") is not False
        if address is not None and ready and family(address) == slice.raw.get("addressType"):
            name = fields.text(mapping(entry.get("targetRef")).get("name"))
            yield Endpoint(address, port, name or address)
