"""Requests for addresses, and the results of allocation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from windowbox.models.loadbalancers import Family, family
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.ipam.entries import Holder, port_conflicts

_SHARE = "loadbalancer.windowbox/share"
_FIXED = "annotation loadbalancer.windowbox/address (or spec.loadBalancerIP)"


REBUILDING = "AddressBookIncomplete"
USED_UP = "AddressRangeUsedUp"
QUOTA_EXCEEDED = "AddressQuotaExceeded"
QUEUE_FULL = "AddressQueueFull"
STORE_FULL = "AddressStoreFull"
REFUSED = frozenset({QUOTA_EXCEEDED, QUEUE_FULL, STORE_FULL})
"""Rejections by a limit of the cluster: the Service is requeued once the cluster is below the limit."""


@dataclass(frozen=True)
class AddressRequest:
    """A Service's request to the allocator."""

    ref: ObjectRef
    uid: str
    families: tuple[Family, ...]
    """Each gets one address."""
    requested: tuple[str, ...] = ()
    """The only addresses it takes, at most one of each family."""
    share: str | None = None
    ports: tuple[str, ...] = ()
    """`80/TCP` and so on."""
    adopt: tuple[str, ...] = ()
    """The addresses that we reported for it: it keeps them, even if the bus has lost the allocation."""
    content: bool = False
    """One family is better than none (PreferDualStack)."""
    shown: tuple[str, ...] = ()
    """Addresses that only its own status shows."""
    avoid: tuple[str, ...] = ()
    """Addresses that it cannot use, because other processes hold its ports there. It moves to a free address,
    unless there is none, or it has requested this one."""
    version: str = ""
    """The Service's resource version that has our finalizer."""
    range: str = ""
    """The name of the range that its addresses are from; empty: the usual one."""

    @cached_property
    def fixed(self) -> Mapping[Family, str]:
        """The requested addresses by family."""
        return {family(address): address for address in self.requested}

    @property
    def shared_ports(self) -> tuple[str, ...]:
        """The ports to store. Of a Service that shares no address, they conflict with none."""
        return self.ports if self.share else ()

    def holder(self, since: float, before: Holder | None = None) -> Holder:
        """Its entry as a holder since `since`, unless it was a holder `before`."""
        same = before is not None and before.uid == self.uid
        return Holder(
            cluster=self.ref.cluster,
            namespace=self.ref.namespace,
            name=self.ref.name,
            uid=self.uid,
            since=before.since if before and same else since,
            share=self.share,
            ports=self.shared_ports,
            version=before.version or self.version if before and same else self.version,
        )


@dataclass(frozen=True)
class Allocated:
    """The Service holds all addresses that it asked for."""

    addresses: Mapping[Family, str]
    notice: str = ""
    """The difference from the request, for people."""
    wake: tuple[ObjectRef, ...] = ()
    """Services to requeue: they waited for addresses that it has released."""


@dataclass(frozen=True)
class Queued:
    """The Service waits. The release of an address for it requeues it."""

    reason: str
    note: str
    wake: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True)
class Rejected:
    """The request cannot be fulfilled. The Service keeps what it holds."""

    reason: str
    note: str
    wake: tuple[ObjectRef, ...] = ()


Answer = Allocated | Queued | Rejected


@dataclass(frozen=True)
class Released:
    """Released addresses, and Services to requeue."""

    addresses: tuple[str, ...] = ()
    wake: tuple[ObjectRef, ...] = ()


def used_up(family: Family, total: int, ahead: int) -> Queued:
    # Without its position: each step forward would cause another Event.
    waits = "others have waited longer" if ahead else "it gets the next that is given back"
    return Queued(
        USED_UP,
        f"all {total} {family} addresses of its range are in use; {waits}: "
        "delete a Service that is no longer needed, or widen loadbalancer.ranges in windowbox's settings",
    )


def queue_full(family: Family, total: int, most: int) -> Rejected:
    return Rejected(
        QUEUE_FULL,
        f"all {total} {family} addresses of its range are in use, and as many Services of this cluster wait "
        f"as may at once ({most}); it waits, too, once there are fewer: delete Services that are no longer "
        "needed, or widen loadbalancer.ranges in windowbox's settings",
    )


def quota_exceeded(family: Family, quota: int) -> Rejected:
    return Rejected(
        QUOTA_EXCEEDED,
        f"Services of this cluster have as many {family} addresses as a cluster may have ({quota}): delete a "
        "Service that is no longer needed, or set a higher loadbalancer.quota in windowbox's settings",
    )


def store_full(most: int) -> Rejected:
    return Rejected(
        STORE_FULL,
        f"the addresses and waiting Services of this cluster, with those of the last hour, take more than "
        f"{most >> 10} KiB, the most that a cluster may: delete Services that are no longer needed",
    )


def rebuilding() -> Queued:
    return Queued(
        REBUILDING,
        "allocations are being restored: a new address is given as soon as all that are in use are known",
    )


def no_range(cluster: str) -> Rejected:
    return Rejected(
        "NoAddressRange",
        f"no range of addresses is for cluster {cluster!r}: add one to loadbalancer.ranges in "
        "windowbox's settings",
    )


def no_family(family: Family) -> Rejected:
    return Rejected(
        "NoAddressRange",
        f"its range has no {family} addresses: add an {family} prefix to loadbalancer.ranges in windowbox's "
        f"settings, or take {family} out of spec.ipFamilies",
    )


def wrong_family(family: Family, address: str) -> Rejected:
    return Rejected(
        "AddressFamilyMismatch",
        f"{_FIXED}: {address} is {family}, which spec.ipFamilies does not list: "
        "ask for an address of a family that the Service has",
    )


def outside(address: str, range_: str) -> Rejected:
    return Rejected(
        "AddressOutsideRange",
        f"{_FIXED}: {address} is none of the addresses that can be given away ({range_}): "
        "choose one of these, or leave the choice to windowbox",
    )


def address_conflict(address: str, request: AddressRequest, holder: Holder, other: Holder) -> Rejected:
    """Another Service holds the requested address, and does not share it."""
    whose = _name(request, other)
    if ports := port_conflicts(holder, other):
        return Rejected(
            "AddressTaken",
            f"{_FIXED}: {address} has {_ports(ports)} of {whose} already: change spec.ports of one of them, "
            "or choose another address",
        )
    return Rejected(
        "AddressTaken",
        f"{_FIXED}: {address} belongs to {whose}: choose another, or give both Services of one cluster the "
        f"same annotation {_SHARE} and different ports",
    )


def crowded(address: str, most: int) -> Rejected:
    """As many Services as may share the requested address."""
    return Rejected(
        "AddressTaken",
        f"{_FIXED}: {most} Services share {address}, the most that may share one: choose another address",
    )


def port_conflict(address: str, request: AddressRequest, holder: Holder, other: Holder) -> Rejected:
    """A port was added that another holder of the shared address has."""
    return Rejected(
        "PortTaken",
        f"spec.ports: {_ports(port_conflicts(holder, other))} of {address} belongs to "
        f"{_name(request, other)}, which shares it: use another port, or take annotation {_SHARE} away",
    )


def not_shared(request: AddressRequest, address: str, other: Holder) -> str:
    """Note for a Service that would share an address and has one of its own."""
    ports = port_conflicts(request.holder(0.0), other)
    return (
        f"it has an address of its own: {_ports(ports)} of {address} belongs to {_name(request, other)}; to "
        f"share that address, use other ports"
    )


def _ports(ports: list[str]) -> str:
    return f"port {ports[0]}" if len(ports) == 1 else f"ports {', '.join(ports)}"


def _name(request: AddressRequest, other: Holder) -> str:
    # Names of one cluster are not shown in another.
    if other.cluster != request.ref.cluster:
        return "a Service of another cluster"
    return f"Service {other.namespace}/{other.name}"
