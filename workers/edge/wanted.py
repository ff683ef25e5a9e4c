"""What an edge has to carry for a Service: listeners, and where each sends its clients."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace

import orjson

from windowbox.clients import kubeproxy
from windowbox.models.loadbalancers import Endpoint, Family, Listener, LoadBalancer, family
from windowbox.models.objects import Json, Object
from windowbox.models.refs import ObjectRef
from workers.edge.nodes import Backend
from workers.loadbalancer.spec import fields
from workers.loadbalancer.spec.demands import Demand, Port


def load_balancer(
    ref: ObjectRef,
    demand: Demand,
    addresses: Mapping[Family, str],
    backends: Collection[Backend],
    slices: Iterable[Object] = (),
) -> LoadBalancer:
    """What `demand` comes to at `addresses`; `slices` are the Service's EndpointSlices, as far as they are
    known.

    One that is drained has no listeners: Envoy takes nothing new, and lets go on what goes on.
    """
    if demand.drained:
        return LoadBalancer(ref, demand.uid, ())
    pods = tuple(slices)
    ports = [(port, *_endpoints(demand, port, backends, pods)) for port in demand.ports]
    listeners = [
        _listener(demand, port, addresses[of], endpoints, check, _vacant(pods, of))
        for of in demand.families
        if of in addresses
        for port, endpoints, check in ports
    ]
    return LoadBalancer(ref, demand.uid, tuple(listeners))


def digest(balancer: LoadBalancer) -> str:
    """Short for all that is the Service's own, and changes only with it: nothing of nodes and Pods."""
    own = (asdict(_own(listener)) for listener in balancer.listeners)
    said = orjson.dumps([balancer.uid, list(own)])
    return hashlib.sha256(said).hexdigest()[:16]


def _own(listener: Listener) -> Listener:
    # Whether Envoy or the owner of the edge asks kube-proxy is not the Service's business.
    check = None if listener.check == kubeproxy.PORT else listener.check
    return replace(listener, endpoints=(), vacant=False, check=check)


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
    asked = demand.health_port == kubeproxy.PORT and all(node.unhealthy is not None for node in nodes)
    endpoints = (
        Endpoint(address, port.node_port, node.name, unhealthy=asked and of in (node.unhealthy or ()))
        for node in nodes
        for of, address in node.addresses.items()
    )
    return tuple(endpoints), None if asked else demand.health_port


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


def _listener(
    demand: Demand, port: Port, address: str, endpoints: Iterable[Endpoint], check: int | None, vacant: bool
) -> Listener:
    of = family(address)
    tcp = port.protocol == "TCP"
    return Listener(
        address=address,
        port=port.port,
        protocol=port.protocol,
        endpoints=tuple(endpoint for endpoint in endpoints if family(endpoint.address) == of),
        check=check,
        affinity=demand.affinity,
        allowed=_of_family(demand.allowed, of),
        proxy_protocol=demand.proxy_protocol if tcp else None,
        idle_timeout=demand.idle_timeout,
        max_connections=demand.max_connections if tcp else None,
        vacant=vacant,
    )


def _of_family(prefixes: Iterable[str] | None, of: Family) -> tuple[str, ...] | None:
    # Where only the other family's are given, nobody of this one may come.
    return None if prefixes is None else tuple(prefix for prefix in prefixes if family(prefix) == of)


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
