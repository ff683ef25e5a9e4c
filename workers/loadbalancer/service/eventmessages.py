"""The Events of a load balancer, word by word as rules LB-3-* (docs/contract-coverage.md) have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from bus.messages import EventIntent
from workers.loadbalancer.spec import fields
from workers.loadbalancer.spec.options import Refusal

Doing = Literal["ensure", "delete"]

_MOST_NAMES = 20
_MOST_REFUSALS = 3
"""Events for one reason; more refusals share one Event."""
DRAINED = (
    "No new connections are taken, as its annotation loadbalancer.windowbox/drain asks; those that are open "
    "go on"
)
_LONGEST = 1024
"""Characters: the API rejects an Event with a longer note."""


def ensuring() -> EventIntent:
    return _normal("EnsuringLoadBalancer", "Ensuring load balancer")


def ensured() -> EventIntent:
    return _normal("EnsuredLoadBalancer", "Ensured load balancer")


def updated() -> EventIntent:
    """The load balancer has other nodes than before."""
    return _normal("UpdatedLoadBalancer", "Updated load balancer with new hosts")


def drained() -> EventIntent:
    """It takes no new connections, as its annotation asks."""
    return _normal("DrainedLoadBalancer", DRAINED)


def unavailable(why: str = "") -> EventIntent:
    """There is no node to send traffic to; `why` comes from `nodes.no_backends`."""
    note = "There are no available nodes for LoadBalancer"
    return _warning("UnAvailableLoadBalancer", f"{note}: {why}" if why else note)


def update_failed(nodes: Collection[str], error: str) -> EventIntent:
    """The nodes of an existing load balancer could not be changed."""
    names = sorted(nodes)
    shown = names[:_MOST_NAMES] + [f"<{len(names) - _MOST_NAMES} more>"] * (len(names) > _MOST_NAMES)
    note = (
        f"Error updating load balancer with new hosts [{' '.join(shown)}] "
        f"[node names limited, total number of nodes: {len(names)}], error: {error}"
    )
    return _warning("UpdateLoadBalancerFailed", note)


def sync_failed(doing: Doing, cause: str) -> EventIntent:
    return _warning(
        "SyncLoadBalancerFailed", f"Error syncing load balancer: failed to {doing} load balancer: {cause}"
    )


def deleting() -> EventIntent:
    return _normal("DeletingLoadBalancer", "Deleting load balancer")


def deleted() -> EventIntent:
    return _normal("DeletedLoadBalancer", "Deleted load balancer")


def address_not_shared(why: str) -> EventIntent:
    return _warning("AddressNotShared", why)


def node_address_refused(nodes: Collection[str]) -> EventIntent:
    return _warning("NodeAddressRefused", f"No traffic is sent to {'; '.join(nodes)}")


def no_zone(name: str) -> EventIntent:
    """Its status shows addresses, though the cloud would show a host name."""
    note = (
        f"The status shows addresses, because no zone of dns.zones contains {name}: "
        f"add the zone {'.'.join(name.split('.')[-2:])}, or one inside of it"
    )
    return _warning("HostNameNotPublished", note)


def refused(refusals: Iterable[Refusal]) -> list[EventIntent]:
    """Events for refusals: a few for each reason, however many ports there are."""
    by_reason: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        by_reason.setdefault(refusal.reason, []).append(refusal)
    events = []
    for reason, found in by_reason.items():
        notes = [refusal.note for refusal in found]
        if len(notes) > _MOST_REFUSALS:
            ports = [f"{port[0]}/{port[1]}" for port in (one.port for one in found[1:]) if port]
            more = f" ({fields.listed(ports)})" if ports else ""
            notes = [f"{notes[0]}. So it is with {len(notes) - 1} more{more}"]
        events += [_warning(reason, note) for note in notes]
    return events


def _normal(reason: str, note: str) -> EventIntent:
    return EventIntent(type="Normal", reason=reason, note=note)


def _warning(reason: str, note: str) -> EventIntent:
    long = len(note) > _LONGEST
    return EventIntent(type="Warning", reason=reason, note=f"{note[: _LONGEST - 1]}…" if long else note)
