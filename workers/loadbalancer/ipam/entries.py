"""Entries of the address store: holders, Services that wait, and the marker of completeness."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from bus.messages import Message
from windowbox.models.loadbalancers import Family
from windowbox.models.refs import SERVICES, ObjectRef

logger = logging.getLogger(__name__)

Group = tuple[str, str]
"""A cluster and a sharing key: Services of one group share an address if their ports differ."""


class Holder(Message):
    """A Service that has an address, alone or with others."""

    cluster: str
    namespace: str
    name: str
    uid: str
    since: float
    share: str | None = None
    """Services with the same word may share the address, at other ports."""
    ports: tuple[str, ...] = ()
    """`80/TCP` and so on, if it shares."""
    version: str = ""
    """The resource version of the Service with our finalizer on, when it got the address."""
    until: float | None = None
    """End of the grace period of a Service that is no load balancer for now."""

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.cluster, SERVICES.id, self.namespace, self.name)

    @property
    def group(self) -> Group | None:
        return (self.cluster, self.share) if self.share else None


class Held(Message):
    """An address and its holders."""

    holders: tuple[Holder, ...]

    def of(self, ref: ObjectRef) -> Holder | None:
        return next((holder for holder in self.holders if holder.ref == ref), None)

    def others(self, ref: ObjectRef) -> tuple[Holder, ...]:
        return tuple(holder for holder in self.holders if holder.ref != ref)

    @property
    def groups(self) -> set[Group]:
        """The groups whose other Services might share the address."""
        return {holder.group for holder in self.holders if holder.group}

    @property
    def clusters(self) -> set[str]:
        return {holder.cluster for holder in self.holders}


FREE = Held(holders=())

_UNREADABLE = Held(holders=(Holder(cluster="", namespace="", name="", uid="", since=0.0),))
"""An entry that cannot be read counts as held, until the sweep finds that its Service does not exist."""


def read(value: bytes | None) -> Held:
    """The holders of an address, from its entry."""
    if not value:
        return FREE
    try:
        return Held.model_validate_json(value)
    except ValueError as error:
        logger.error("address store: an entry cannot be read: %s", error)
        return _UNREADABLE


class Waiter(Message):
    """A Service that waits for an address."""

    uid: str
    since: float
    families: tuple[Family, ...] = ()
    """The families of which it takes any address."""
    addresses: tuple[str, ...] = ()
    """The requested addresses, which others hold."""
    share: str | None = None
    ports: tuple[str, ...] = ()
    """For sharing: see `Holder`."""
    range: str = ""
    """The name of the range of these families; empty: the usual one."""

    def group(self, ref: ObjectRef) -> Group | None:
        """The sharing group of `ref`, the Service that waits."""
        return (ref.cluster, self.share) if self.share else None


class Marker(Message):
    """All addresses that were in use at this time are in the store."""

    id: str
    at: float


def conflict(holder: Holder, others: Iterable[Holder]) -> Holder | None:
    """One of `others` that cannot share an address with `holder`."""
    ports = set(holder.ports)
    for other in others:
        if not _same_group(holder, other) or ports & set(other.ports):
            return other
    return None


def port_conflicts(holder: Holder, other: Holder) -> list[str]:
    """The ports that keep two holders of one group from sharing; none if they do not share at all."""
    return sorted(set(holder.ports) & set(other.ports)) if _same_group(holder, other) else []


def _same_group(one: Holder, other: Holder) -> bool:
    return one.group is not None and one.group == other.group
