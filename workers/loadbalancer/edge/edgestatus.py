"""The status of the edge, for `windowbox lb` and `windowbox status`: Envoys, endpoints, traffic."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from bus import queries, subjects
from bus.leases import members
from bus.messages import Message
from bus.transport.connection import Bus
from windowbox.errors import TransientError
from windowbox.models.loadbalancers import Listener, LoadBalancer
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.envoy.admin import Health, Traffic
from workers.loadbalancer.envoy.edge import About, Edge
from workers.loadbalancer.ipam.index import Usage

LEASE = "edge"
"""The lease of the edge; those of several hosts have the host's name behind it."""


class Query(Message):
    """A query to the edge controller."""

    key: str | None = None
    """Only this load balancer, in full; None: all of them, in short."""


class ListenerStatus(Message):
    """One address and port for clients."""

    address: str
    port: int
    protocol: str
    backends: tuple[Health, ...] = ()
    open: int = 0
    """Connections, or flows, that are open now."""
    total: int = 0
    received: int = 0
    """Bytes from clients."""
    sent: int = 0
    datagrams_received: int = 0
    datagrams_sent: int = 0
    turned_away: int = 0


class LoadBalancerStatus(Message):
    """One load balancer."""

    key: str
    vacant: bool = False
    """No Pod is ready: connections are refused at once."""
    backends: int = 0
    healthy: int = 0
    open: int = 0
    total: int = 0
    received: int = 0
    """Bytes from clients."""
    sent: int = 0
    places: tuple[ListenerStatus, ...] = ()
    """Only in answers about one load balancer."""


class RangeStatus(Message):
    """The use of one range of addresses."""

    range: str
    family: str
    used: int
    total: int


class HostStatus(Message):
    """The edge of one host of several."""

    name: str
    count: int | None = None
    """The number of load balancers that it serves; None if it does not answer."""
    envoys: tuple[About, ...] = ()


class EdgeStatus(Message):
    """The answer of the edge controller."""

    count: int = 0
    """The number of load balancers."""
    hosts: tuple[HostStatus, ...] = ()
    """All hosts with an edge, if several share the addresses. Their Envoys are among `envoys`, too."""
    envoys: tuple[About, ...] = ()
    balancers: tuple[LoadBalancerStatus, ...] = ()
    ranges: tuple[RangeStatus, ...] = ()
    leaving: dict[str, int] = {}  # noqa: RUF012  (pydantic copies it)
    """Open connections of removed listeners, by the listener's name."""

    def of(self, key: str) -> LoadBalancerStatus | None:
        return next((one for one in self.balancers if one.key == key), None)


async def query(bus: Bus, key: str | None = None) -> EdgeStatus | None:
    """The status of the edge, of all hosts together; None if no process holds its lease."""
    hosts = [host async for host in members.named(bus, LEASE)] or [""]
    asked = (queries.ask(bus, queries.edge(host), Query(key=key).encoded()) for host in hosts)
    answers = [EdgeStatus.model_validate_json(one) if one else None for one in await asyncio.gather(*asked)]
    return _together(dict(zip(hosts, answers, strict=True)))


def _together(by_host: Mapping[str, EdgeStatus | None]) -> EdgeStatus | None:
    """The status of several hosts as one; each load balancer is on one of them. None if none answers."""
    found = [one for one in by_host.values() if one]
    if not found:
        return None
    return EdgeStatus(
        count=sum(one.count for one in found),
        hosts=tuple(
            HostStatus(name=host, count=one.count, envoys=one.envoys) if one else HostStatus(name=host)
            for host, one in sorted(by_host.items())
            if host
        ),
        envoys=tuple(envoy for one in found for envoy in one.envoys),
        balancers=tuple(balancer for one in found for balancer in one.balancers),
        ranges=found[0].ranges,
        leaving=dict(sum((Counter(one.leaving) for one in found), Counter())),
    )


async def answer(
    request: bytes,
    edges: Collection[Edge],
    load_balancers: Mapping[ObjectRef, LoadBalancer],
    usage: Iterable[Usage],
) -> bytes:
    """The answer to a query about `edges`."""
    key = (Query.model_validate_json(request) if request else Query()).key
    envoys, health, traffic = [], dict[str, tuple[Health, ...]](), dict[str, Traffic]()
    for edge in edges:
        try:
            about, healths, counted = await asyncio.gather(edge.about(), edge.health(), edge.traffic())
        except TransientError:  # it starts, or has just ended
            continue
        envoys.append(about)
        health |= healths
        traffic |= counted
    listeners = {one.name for balancer in load_balancers.values() for one in balancer.listeners}
    return EdgeStatus(
        count=len(load_balancers),
        envoys=tuple(envoys),
        balancers=tuple(
            _balancer(balancer, health, traffic, whole=key is not None)
            for ref, balancer in load_balancers.items()
            if key in (None, subjects.key(ref))
        ),
        ranges=tuple(
            RangeStatus(range=one.range, family=one.family, used=one.used, total=one.total) for one in usage
        ),
        leaving={
            name: counted.active
            for name, counted in traffic.items()
            if counted.active and name not in listeners
        },
    ).encoded()


def _balancer(
    balancer: LoadBalancer,
    health: Mapping[str, tuple[Health, ...]],
    traffic: Mapping[str, Traffic],
    *,
    whole: bool,
) -> LoadBalancerStatus:
    places = [
        _place(balancer, one, health.get(one.name, ()), traffic.get(one.name, Traffic()))
        for one in balancer.listeners
    ]
    # A node is healthy if it is healthy at all ports.
    seen: dict[str, bool] = {}
    for backend in (backend for place in places for backend in place.backends):
        seen[backend.name] = seen.get(backend.name, True) and backend.healthy
    return LoadBalancerStatus(
        key=subjects.key(balancer.ref),
        vacant=bool(balancer.listeners) and all(one.vacant for one in balancer.listeners),
        backends=len(seen),
        healthy=sum(seen.values()),
        open=sum(place.open for place in places),
        total=sum(place.total for place in places),
        received=sum(place.received for place in places),
        sent=sum(place.sent for place in places),
        places=tuple(places) if whole else (),
    )


def _place(
    balancer: LoadBalancer, listener: Listener, healths: Iterable[Health], counted: Traffic
) -> ListenerStatus:
    unknown = ("no Pod behind it is ready" if listener.vacant else "Envoy has not heard of it yet",)
    found = {(one.address, one.port): one for one in healths}
    backends = []
    for endpoint in balancer.endpoints_of(listener):
        health = found.get((endpoint.address, endpoint.port))
        backends.append(
            Health(
                name=endpoint.name,
                address=endpoint.address,
                port=endpoint.port,
                healthy=health is not None and health.healthy,
                reasons=health.reasons if health else unknown,
            )
        )
    return ListenerStatus(
        address=listener.address,
        port=listener.port,
        protocol=listener.protocol,
        backends=tuple(backends),
        open=counted.active,
        total=counted.connections,
        received=counted.received,
        sent=counted.sent,
        datagrams_received=counted.datagrams_received,
        datagrams_sent=counted.datagrams_sent,
        turned_away=counted.turned_away,
    )
