"""What an edge has to carry for a Service: listeners, and where each sends its clients."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from windowbox.models.loadbalancers import KUBE_PROXY_PORT, Endpoint, Family, Listener, LoadBalancer, family
from windowbox.models.objects import Json, Object
from windowbox.models.refs import ObjectRef
from workers.edge.nodes import Backend
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
    asked = [
        one for one in listeners.listeners(demand, addresses) if (one.address, one.place) not in conflicts
    ]
    pods = tuple(slices)
    by_place = {port.place: _endpoints(demand, port, backends, pods) for port in demand.ports}
    return LoadBalancer(
        ref,
        demand.uid,
        tuple(_with_endpoints(one, *by_place[one.place], pods) for one in asked),
        listeners.digest(demand.uid, asked),
        tuple(addresses[of] for of in sorted(addresses)),
    )


def box_name(uid: str) -> str:
    """What a Service's own Envoy is called; Gardener's scripts and people know it by this name."""
    return f"gardener-lb-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


def endpoints_of(slices: Iterable[Object], port: Port) -> tuple[Endpoint, ...]:
    """The Pods that are ready to serve `port`, of both families, each once."""
    found = {
        endpoint
        for slice in slices
        if not slice.deleting
        for number in _numbers(slice, port)
        for endpoint in _ready(slice, number)
    }
    return tuple(sorted(found, key=lambda one: (family(one.address), one.address, one.port, one.name)))


def _endpoints(
    demand: Demand, port: Port, backends: Iterable[Backend], slices: Iterable[Object]
) -> tuple[tuple[Endpoint, ...], int | None]:
    """Where the port's clients go, and at which port those who serve them are asked for their health."""
    if port.node_port is None:
        return endpoints_of(slices, port), None  # what is not ready is not in there
    nodes = sorted(backends, key=lambda node: node.name)
    asked = demand.health_port == KUBE_PROXY_PORT and all(node.unhealthy is not None for node in nodes)
    endpoints = (
        Endpoint(address, port.node_port, node.name, unhealthy=asked and of in (node.unhealthy or ()))
        for node in nodes
        for of, address in node.addresses.items()
    )
    return tuple(endpoints), None if asked else demand.health_port


def _with_endpoints(
    listener: Listener, endpoints: Iterable[Endpoint], check: int | None, pods: Iterable[Object]
) -> Listener:
    of = family(listener.address)
    mine = tuple(endpoint for endpoint in endpoints if family(endpoint.address) == of)
    return replace(listener, endpoints=mine, check=check, vacant=_vacant(pods, of))


def _vacant(slices: Iterable[Object], of: Family) -> bool:
    """Whether it is known that there are no Pods.

    Nodes refuse connections then, but only one a second to each client: of a Service with many clients, most
    would wait until they give up.
    """
    known = [one for one in slices if one.raw.get("addressType") == of and not one.deleting]
    pods = (pod for slice in known for pod in fields.mappings(slice.raw.get("endpoints")))
    return bool(known) and not any(_serves(fields.mapping(pod.get("conditions"))) for pod in pods)


def _serves(conditions: Json) -> bool:
    # Where no Pod is ready, those that are about to end are used.
    return conditions.get("ready") is not False or conditions.get("serving") is True


def _numbers(slice: Object, port: Port) -> list[int]:
    """The Pods' ports, by the name that the Service's port has, too."""
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
        # The first is meant; others, if any, are other names of the same Pod. A host name is none.
        address = fields.address(next(iter(fields.items(entry.get("addresses"))), None))
        # Unknown counts as ready.
        ready = fields.mapping(entry.get("conditions")).get("ready") is not False
        if address is not None and ready and family(address) == slice.raw.get("addressType"):
            name = fields.text(fields.mapping(entry.get("targetRef")).get("name"))
            yield Endpoint(address, port, name or address)
