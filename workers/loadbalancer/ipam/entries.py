"""What the address book says: who holds an address, who waits for one, and whether it may be relied on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bus.messages import Message
from windowbox.models.loadbalancers import Family
from windowbox.models.refs import SERVICES, ObjectRef

logger = logging.getLogger(__name__)


class Holder(Message):
    """A Service that has an address, alone or with others."""

    cluster: str
    namespace: str
    name: str
    uid: str
    since: float
    share: str | None = None
    """Others with the same word may have the address too, at other ports."""
    ports: tuple[str, ...] = ()
    """`80/TCP` and so on."""
    version: str = ""
    """The version of the Service that bore our finalizer when it got the address."""
    until: float | None = None
    """Until when it is kept for a Service that is no load balancer for now."""

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.cluster, SERVICES.id, self.namespace, self.name)


class Held(Message):
    """An address that somebody holds."""

    holders: tuple[Holder, ...]

    def of(self, ref: ObjectRef) -> Holder | None:
        return next((holder for holder in self.holders if holder.ref == ref), None)

    def others(self, ref: ObjectRef) -> tuple[Holder, ...]:
        return tuple(holder for holder in self.holders if holder.ref != ref)


FREE = Held(holders=())

_UNREADABLE = Held(holders=(Holder(cluster="", namespace="", name="", uid="", since=0.0),))
"""What cannot be read is somebody's all the same, until an owner finds that there is no such Service."""


def read(value: bytes | None) -> Held:
    """Whose an address is, by what stands in the book."""
    if not value:
        return FREE
    try:
        return Held.model_validate_json(value)
    except ValueError as error:
        logger.error("address book: an entry cannot be read: %s", error)
        return _UNREADABLE


class Waiter(Message):
    """A Service that would like an address."""

    uid: str
    since: float
    families: tuple[Family, ...] = ()
    """Of which families it would take any."""
    addresses: tuple[str, ...] = ()
    """Those that it wants and no others, and that somebody else has."""
    share: str | None = None
    ports: tuple[str, ...] = ()
    """With whom it would have an address together: see `Holder`."""

    def holder(self, ref: ObjectRef) -> Holder:
        """How `ref`, which waits, would stand in the book."""
        return Holder(
            cluster=ref.cluster,
            namespace=ref.namespace,
            name=ref.name,
            uid=self.uid,
            since=self.since,
            share=self.share,
            ports=self.ports,
        )


class Marker(Message):
    """All addresses that were in use at this time are in the book."""

    id: str
    at: float


def conflict(holder: Holder, others: Iterable[Holder]) -> Holder | None:
    """One of `others` with whom `holder` cannot have an address together."""
    return next((other for other in others if not can_share(holder, other)), None)


def can_share(one: Holder, other: Holder) -> bool:
    """Whether both may have the same address."""
    return _willing(one, other) and not set(one.ports) & set(other.ports)


def _willing(one: Holder, other: Holder) -> bool:
    return bool(one.share) and one.share == other.share and one.cluster == other.cluster


def port_conflicts(holder: Holder, other: Holder) -> list[str]:
    """The ports because of which two that would share cannot; none if they would not share at all."""
    return sorted(set(holder.ports) & set(other.ports)) if _willing(holder, other) else []


class ResolvedClaims(NamedTuple):
    """Whose an address is, once everybody's claims are known."""

    holders: tuple[Holder, ...]
    displaced: tuple[Holder, ...]


def settled(held: Sequence[Holder], claimed: Sequence[Holder]) -> ResolvedClaims:
    """Whose the address is: it belongs to those whose status shows it.

    Where two show the same, the book decides, then the name. Who is in the book and shows nothing may be
    about to: it stays, unless it is in the way of one that shows it.
    """
    before = {holder.uid: holder for holder in held}
    ordered = sorted(claimed, key=lambda c: (c.uid not in before, c.namespace, c.name))
    silent = [holder for holder in held if all(holder.ref != claim.ref for claim in claimed)]
    holders: list[Holder] = []
    displaced: list[Holder] = []
    for one in [*(before.get(c.uid, c) for c in ordered), *silent]:
        (displaced if conflict(one, holders) else holders).append(one)
    return ResolvedClaims(tuple(holders), tuple(displaced))
