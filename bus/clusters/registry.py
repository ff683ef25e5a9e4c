"""The registry of member clusters. They join and leave at run time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Set
from typing import Literal

from bus import streams, subjects
from bus.messages import Message
from bus.transport import buckets, consumers
from bus.transport.connection import Bus, Stored, WrongSequence
from windowbox.errors import Conflict, Missing, WindowboxError
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.refs import RUNTIME, SecretKey, is_provider_cluster

logger = logging.getLogger(__name__)

_STREAM = f"KV_{streams.CLUSTERS}"
_DELETED = {"KV-Operation": "DEL", "Nats-TTL": "720h"}
"""A deletion is kept for a month, so that processes that were cut off do not restore the member."""


class MachinePlace(Message):
    """Where the machine Pods of a cluster's nodes run."""

    namespace: str
    cluster: str = RUNTIME


class Member(Message):
    """A member cluster, and where to find its credentials."""

    id: str
    secret: SecretKey | None = None
    file: str | None = None
    """A kubeconfig file that every process can read."""
    kinds: tuple[str, ...] = ()
    namespace: str = ""
    """The only namespace that may be read there; empty for all."""
    machines: MachinePlace | None = None
    """None if its nodes are reachable without a route of windowbox."""
    origin: Literal["person", "namespace", "controlplane", "settings", "provider"] = "person"
    """The registrant: a program, or a person. Only a person removes a member that a person has registered."""
    asleep: bool = False
    """It is hibernated, without an API server. Its objects are not served, its addresses are kept."""
    cloud: CloudFacts | None = None
    """The cloud that its load balancers emulate, if its Shoot is of that type."""


class Registry:
    """The member clusters, as this process knows them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.members: dict[str, Member] = {}
        self.complete = asyncio.Event()
        self._reading = _Reading()
        self._forgetful = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def left(self) -> Set[str]:
        """The clusters that have left and not joined again."""
        return self._reading.left

    def served(self) -> Set[str]:
        """The clusters whose objects are served. In provider clusters only our own objects are watched."""
        return {
            cluster
            for cluster, member in self.members.items()
            if not (member.asleep or is_provider_cluster(cluster))
        }

    def cloud(self, cluster: str) -> CloudFacts | None:
        """The cloud that the load balancers of the cluster emulate, if any."""
        member = self.members.get(cluster)
        return member.cloud if member else None

    def asleep(self) -> Set[str]:
        """The hibernated clusters: they have no API server at the moment."""
        return {cluster for cluster, member in self.members.items() if member.asleep}

    def on_change(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` after each change. Returns how to unsubscribe."""
        self._listeners.append(act)
        return lambda: self._listeners.remove(act)

    async def run(self) -> None:
        """Follow members that join and leave; never returns."""
        while True:
            fresh = _Reading()
            filters = [subjects.entry(streams.CLUSTERS, ">")]
            try:
                async for stored in consumers.follow(self._bus, _STREAM, filters):
                    if stored is not None:
                        fresh.take(stored)
                    if stored is not None and self._reading is not fresh:
                        continue
                    self._reading = fresh
                    # The bus keeps an entry for a member that has left. Without any, it has lost the member.
                    self.members = {one.id: one for one in self._forgotten()} | fresh.members
                    if self._forgotten():
                        self._forgetful.set()
                    self.complete.set()
                    for act in self._listeners:
                        act()
            except WindowboxError as error:
                logger.debug("registry of clusters: %s", error)
                await asyncio.sleep(0.5)

    async def keep(self) -> None:
        """Register members again that the bus has lost and this process still knows; never returns."""
        while True:
            await self._forgetful.wait()
            self._forgetful.clear()
            try:
                for member in self._forgotten():
                    logger.warning("the registry has lost cluster %s; it stays a member", member.id)
                    with contextlib.suppress(WrongSequence):
                        await self._write(member.id, member, 0)
            except WindowboxError as error:
                logger.info("registry of clusters: %s; again in 1 s", error)
                await asyncio.sleep(1)
                self._forgetful.set()

    async def join(self, member: Member) -> None:
        await self._write(member.id, member, None)

    async def leave(self, cluster: str) -> None:
        last = await self._bus.last(_STREAM, _subject(cluster))
        if last is None or buckets.gone(last):
            raise Missing(f"no cluster {cluster!r} is a member; `windowbox clusters list` shows the members")
        await self._write(cluster, None, last.sequence)

    async def exchange(self, cluster: str, before: Member | None, after: Member | None) -> None:
        """Replace the member `before` by `after`; None is no member. Conflict if it has changed meanwhile."""
        last = await self._bus.last(_STREAM, _subject(cluster))
        reading = _Reading()
        if last is not None:
            reading.take(last)
        if reading.members.get(cluster) != before:
            raise Conflict(f"cluster {cluster!r} has changed meanwhile")
        await self._write(cluster, after, last.sequence if last else 0)

    async def _write(self, cluster: str, member: Member | None, expected: int | None) -> None:
        content, headers = (member.encoded(), {}) if member else (b"", _DELETED)
        await self._bus.publish(_subject(cluster), content, headers, expect_last=expected)

    def _forgotten(self) -> list[Member]:
        return [member for member in self.members.values() if member.id not in self._reading.heard]


async def members(bus: Bus) -> dict[str, Member]:
    """The member clusters as the bus has them now."""
    reading = _Reading()
    async for stored in consumers.snapshot(bus, _STREAM, [subjects.entry(streams.CLUSTERS, ">")]):
        reading.take(stored)
    return reading.members


class _Reading:
    """The members that one reading from the beginning has brought so far."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.left: set[str] = set()
        self.heard: set[str] = set()
        """All clusters with an entry, even an unreadable one."""

    def take(self, stored: Stored) -> None:
        cluster = subjects.name_of_cluster(subjects.without(f"$KV.{streams.CLUSTERS}", stored.subject))
        self.heard.add(cluster)
        self.left.discard(cluster)
        if buckets.gone(stored):
            self.members.pop(cluster, None)
            self.left.add(cluster)
            return
        try:
            member = Member.model_validate_json(stored.data)
            if member.id != cluster:
                raise ValueError(f"it calls itself {member.id!r}")
            self.members[cluster] = member
        except ValueError as error:
            # An unreadable entry must not keep the other clusters from being read.
            logger.error("registry of clusters: %s is skipped: %s", stored.subject, error)


def _subject(cluster: str) -> str:
    return subjects.entry(streams.CLUSTERS, subjects.of_cluster(cluster))
