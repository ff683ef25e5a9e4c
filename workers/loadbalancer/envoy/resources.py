"""The desired state of one Envoy. A resource that does not change stays the same object."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from windowbox.errors import Malformed
from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.envoy import bootstrap, rendering
from workers.loadbalancer.envoy.attachments import Published
from workers.loadbalancer.envoy.delta import Kind, Resources

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
    listeners: Resources
    clusters: Resources
    endpoints: Resources
    checks: int
    """How many endpoints Envoy checks."""


@dataclass(frozen=True)
class Configuration:
    """The configuration of an Envoy: each resource by the name of its listener."""

    listeners: Resources
    clusters: Resources
    endpoints: Resources
    interval: int
    """The minimal milliseconds between two checks of an endpoint."""
    owners: tuple[Owner, ...] = ()
    checks: bool = field(default=False, compare=False)
    """Whether Envoy checks endpoints."""
    rendered: Mapping[ObjectRef, Rendered] = field(default_factory=dict, compare=False)
    """What each load balancer became: one that stays is not rendered again."""

    def resources(self, *, often: bool = False) -> dict[Kind, Resources]:
        """All resources; `often`: Envoy soon repeats a health check that failed."""
        interval = _INTERVALS[0] if often else self.interval
        return {
            Kind.RUNTIME: {bootstrap.LAYER: rendering.runtime(interval)},
            Kind.CLUSTERS: self.clusters,
            Kind.ENDPOINTS: self.endpoints,
            Kind.LISTENERS: self.listeners,
        }

    @property
    def published(self) -> list[Published]:
        """All ports of the listeners."""
        parts = (name.split("_") for name in self.listeners)
        return [
            Published(address, int(port), "TCP" if protocol == "tcp" else "UDP")
            for protocol, address, port in parts
        ]


NOTHING = Configuration({}, {}, {}, _INTERVALS[0])


def configuration(
    load_balancers: Collection[LoadBalancer], *, anywhere: bool = False, before: Configuration = NOTHING
) -> Configuration:
    """The configuration for these load balancers; `anywhere`: at all addresses of a container."""
    lists = rendering.EndpointLists()
    found = {}
    for one in load_balancers:
        kept = before.rendered.get(one.ref)
        if kept is None or kept.balancer is not one:
            kept = _rendered(one, lists, kept, anywhere=anywhere)
        found[one.ref] = kept
    checks = sum(one.checks for one in found.values())
    return Configuration(
        listeners=_by_name(one.listeners for one in found.values()),
        clusters=_by_name(one.clusters for one in found.values()),
        endpoints=_by_name(one.endpoints for one in found.values()),
        interval=check_interval(checks),
        owners=tuple(sorted(_owner_of(one) for one in load_balancers if one.addresses)),
        checks=checks > 0,
        rendered=found,
    )


def _rendered(
    balancer: LoadBalancer, lists: rendering.EndpointLists, before: Rendered | None, *, anywhere: bool
) -> Rendered:
    wanted = balancer.listeners
    if before and before.balancer.listeners is wanted:
        listeners, clusters = before.listeners, before.clusters  # other nodes only
    else:
        listeners = {one.name: rendering.listener(one, anywhere=anywhere) for one in wanted}
        clusters = {one.name: rendering.cluster(one) for one in wanted}
    return Rendered(
        balancer,
        listeners,
        clusters,
        {one.name: lists.endpoints(balancer, one) for one in wanted},
        sum(len(balancer.targets_of(one)) or len(one.endpoints) for one in wanted if one.check),
    )


def _by_name(parts: Iterable[Resources]) -> Resources:
    return {name: one for part in parts for name, one in part.items()}


def _owner_of(one: LoadBalancer) -> Owner:
    return Owner(one.ref.cluster, one.ref.namespace, one.ref.name, one.uid, one.addresses)


def owners_file(owners: Iterable[Owner]) -> bytes:
    return orjson.dumps({"resources": [owner._asdict() for owner in owners]}, option=orjson.OPT_SORT_KEYS)


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
