"""Load balancers of clusters in a cloud: what its annotations ask for, as options of ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from ipaddress import ip_network

from clouds import table
from clouds.frame import balancers
from clouds.frame.balancers import Balancer
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.loadbalancers import Family
from windowbox.models.objects import Object
from workers.loadbalancer.spec.options import Options, Refusal


def balancer(service: Object, facts: CloudFacts | None) -> Balancer | None:
    """How the cloud of its cluster serves the Service; None if that is no cloud."""
    found = table.balancers(facts.type) if facts else None
    return balancers.balancer(found, service, facts) if found and facts else None


def classes(facts: CloudFacts | None) -> Collection[str]:
    """Values of `spec.loadBalancerClass` that the controllers of the cluster's cloud serve."""
    found = table.balancers(facts.type) if facts else None
    return found.classes if found else ()


def families(of: Balancer | None, asked: tuple[Family, ...], first: Family) -> tuple[Family, ...]:
    """The families of its addresses, where the Service asks for these, and lists this one first."""
    if of is None:
        return asked
    return of.families or ((first,) if of.first_family_only else asked)


def applied(given: Options, of: Balancer) -> Options:
    """The options of a Service, and those of its cloud. Annotations of ours decide over those of clouds."""
    if of.rejected:
        note = f"nothing is served: {of.rejected[0]}"
        return replace(
            given, refusals=(*given.refusals, Refusal("CloudOptionNotSupported", note)), fatal=True
        )
    return replace(
        given,
        allowed=_within(given.allowed, of.clients),
        proxy_protocol=given.proxy_protocol or of.proxy_protocol,
        idle_timeout=given.idle_timeout or of.idle_timeout,
        max_connections=given.max_connections or of.max_connections,
        requested=given.requested or of.requested,
        range=of.range,
        hostname=of.hostname,
        translates=of.translates,
        hairpin=of.hairpin,
    )


def _within(allowed: tuple[str, ...] | None, clients: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The source ranges inside the networks of the clients."""
    if allowed is None or clients is None:
        return clients if allowed is None else allowed
    return tuple(dict.fromkeys(_common(allowed, clients)))


def _common(some: Iterable[str], others: Collection[str]) -> Iterable[str]:
    networks = [ip_network(one) for one in others]
    for one in map(ip_network, some):
        for other in networks:
            # Of two networks with a common address, one is in the other.
            if one.version == other.version and one.overlaps(other):
                yield str(max(one, other, key=lambda network: network.prefixlen))
