"""The desired state of one Envoy. A resource that does not change stays the same object."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import orjson

from windowbox.clients.xds.server import Resource
from windowbox.errors import Malformed
from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.envoy import bootstrap, rendering
from workers.loadbalancer.envoy.attachments import Published
from workers.loadbalancer.envoy.delta import Kind, Resources
from workers.loadbalancer.tracked import Tracked

_CHECKS_PER_SECOND = 100
_INTERVALS = (500, 1500, 3000)
_INTERVAL_STEP = 5000


class Owner(NamedTuple):
    """A Service and its addresses."""

    cluster: str
    namespace: str
    name: str
    uid: str
    addresses: tuple[str, ...]


class Rendered(NamedTuple):
    """The resources of one load balancer, by the names of its listeners, and what they were made from."""

    balancer: LoadBalancer
    listeners: Mapping[str, Resource]
    clusters: Mapping[str, Resource]
    endpoints: Mapping[str, Resource]
    checks: int
    """How many endpoints Envoy checks."""
    owner: bytes
    """Its part of the file of owners; empty if it has no addresses."""


class Configuration:
    """The configuration of an Envoy: each resource by the name of its listener. It changes in place."""

    def __init__(self) -> None:
        self.listeners: Resources = Tracked()
        self.clusters: Resources = Tracked()
        self.endpoints: Resources = Tracked()
        self.rendered: dict[ObjectRef, Rendered] = {}
        """What each load balancer became."""
        self._names = 0
        """The names of listeners, each as often as a load balancer has it."""
        self._checks = 0

    def behind(self, addresses: Set[str]) -> dict[ObjectRef, LoadBalancer]:
        """The load balancers with a node at one of these addresses."""
        reached: dict[int, bool] = {}  # all of a cluster share their targets
        found = {}
        for ref, one in self.rendered.items():
            targets = one.balancer.targets
            if (is_reached := reached.get(id(targets))) is None:
                nodes = itertools.chain(*targets.values())
                is_reached = reached[id(targets)] = any(node.address in addresses for node in nodes)
            if is_reached:
                found[ref] = one.balancer
        return found

    def retarget(self, changed: Iterable[Rendered]) -> None:
        """Replace the endpoints of these load balancers. Nothing else of them has changed."""
        endpoints: dict[str, Resource] = {}
        for after in changed:
            before = self.rendered[after.balancer.ref]
            self.rendered[after.balancer.ref] = after
            self._checks += after.checks - before.checks
            endpoints |= after.endpoints
        _put(self.endpoints, endpoints)
        if self._names != len(self.listeners):
            self._put(self.rendered.values())

    def take(self, changed: Mapping[ObjectRef, Rendered | None]) -> bool:
        """Replace the resources of these load balancers. Whether that changes the file of owners."""
        gone, owners = set[str](), False
        for ref, after in changed.items():
            if before := self.rendered.pop(ref, None):
                self._names -= len(before.listeners)
                self._checks -= before.checks
                if not after or after.listeners is not before.listeners:
                    gone |= before.listeners.keys()
            if after:
                self.rendered[ref] = after
                self._names += len(after.listeners)
                self._checks += after.checks
            owners |= (before and before.owner) != (after and after.owner)
        new = [one for one in changed.values() if one]
        for name in gone.difference(*(one.listeners for one in new)):
            for resources in (self.listeners, self.clusters, self.endpoints):
                resources.put(name, None)
        self._put(new)
        if self._names != len(self.listeners):
            # Two have a listener of one name, until the cluster of the former one is listed again.
            self._put(self.rendered.values())
        return owners

    def _put(self, rendered: Iterable[Rendered]) -> None:
        for one in rendered:
            for resources, mine in (
                (self.listeners, one.listeners),
                (self.clusters, one.clusters),
                (self.endpoints, one.endpoints),
            ):
                _put(resources, mine)

    def resources(self, *, often: bool = False) -> dict[Kind, Resources]:
        """All resources; `often`: Envoy soon repeats a health check that failed."""
        interval = _INTERVALS[0] if often else self.interval
        return {
            Kind.RUNTIME: Tracked({bootstrap.LAYER: rendering.runtime(interval)}),
            Kind.CLUSTERS: self.clusters,
            Kind.ENDPOINTS: self.endpoints,
            Kind.LISTENERS: self.listeners,
        }

    @property
    def interval(self) -> int:
        """The minimal milliseconds between two checks of an endpoint."""
        return check_interval(self._checks)

    @property
    def checks(self) -> bool:
        """Whether Envoy checks endpoints."""
        return self._checks > 0

    @property
    def owners(self) -> list[bytes]:
        """The parts of the file of owners."""
        return [one.owner for one in self.rendered.values() if one.owner]

    @property
    def published(self) -> list[Published]:
        """All ports of the listeners."""
        parts = (name.split("_") for name in self.listeners)
        return [
            Published(address, int(port), "TCP" if protocol == "tcp" else "UDP")
            for protocol, address, port in parts
        ]


def _put(resources: Resources, mine: Mapping[str, Resource]) -> None:
    found = ((name, one, resources.get(name)) for name, one in mine.items())
    resources.put_all({n: one for n, one, last in found if last is None or last.version != one.version})


def rendered(
    changed: Mapping[ObjectRef, LoadBalancer | None],
    before: Configuration,
    unhealthy: Set[str] = frozenset(),
    *,
    anywhere: bool = False,
) -> dict[ObjectRef, Rendered | None]:
    """What these load balancers become; `anywhere`: at all addresses of a container."""
    lists, found = rendering.EndpointLists(unhealthy), dict[ObjectRef, Rendered | None]()
    for ref, one in changed.items():
        kept = before.rendered.get(ref)
        if one and (kept is None or kept.balancer is not one):
            found[ref] = _rendered(one, lists, anywhere=anywhere)
        elif one is None:
            found[ref] = None
    return found


def retargeted(
    balancers: Iterable[LoadBalancer], before: Configuration, lists: rendering.EndpointLists
) -> Iterator[Rendered]:
    """What these load balancers become, whose nodes have changed, or the health of these."""
    for one in balancers:
        endpoints, checks = _endpoints(one, lists)
        yield before.rendered[one.ref]._replace(balancer=one, endpoints=endpoints, checks=checks)


def _rendered(balancer: LoadBalancer, lists: rendering.EndpointLists, *, anywhere: bool) -> Rendered:
    wanted = balancer.listeners
    return Rendered(
        balancer,
        {one.name: rendering.listener(one, anywhere=anywhere) for one in wanted},
        {one.name: rendering.cluster(one) for one in wanted},
        *_endpoints(balancer, lists),
        owner_part(_owner_of(balancer)) if balancer.addresses else b"",
    )


def _endpoints(balancer: LoadBalancer, lists: rendering.EndpointLists) -> tuple[Mapping[str, Resource], int]:
    """The endpoints of each listener, and how many of them Envoy checks."""
    checked = [one for one in balancer.listeners if one.check]
    return (
        {one.name: lists.endpoints(balancer, one) for one in balancer.listeners},
        sum(len(balancer.targets_of(one)) or len(one.endpoints) for one in checked),
    )


def _owner_of(one: LoadBalancer) -> Owner:
    return Owner(one.ref.cluster, one.ref.namespace, one.ref.name, one.uid, one.addresses)


def owner_part(owner: Owner) -> bytes:
    """The part of an owner of the file of owners."""
    return orjson.dumps(owner._asdict())


def owners_file(parts: Iterable[bytes]) -> bytes:
    return b'{"resources":[' + b",".join(parts) + b"]}"


def owners_in(file: bytes) -> tuple[Owner, ...]:
    """The owners in a file. Malformed if it is damaged."""
    try:
        found = orjson.loads(file)["resources"]
        return tuple(Owner(**{**one, "addresses": tuple(one["addresses"])}) for one in found)
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"the file of owners is damaged: {error}") from error


def check_interval(checks: int) -> int:
    """Milliseconds between two checks of an endpoint: together, the checks have a limited rate.

    It grows in steps, because each change of it is a response.
    """
    needed = checks * 1000 // _CHECKS_PER_SECOND
    fitting = [interval for interval in _INTERVALS if needed <= interval]
    return fitting[0] if fitting else -(-needed // _INTERVAL_STEP) * _INTERVAL_STEP
