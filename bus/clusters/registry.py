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
from windowbox.models.refs import RUNTIME, SecretKey, is_provider_cluster

logger = logging.getLogger(__name__)

_STREAM = f"KV_{streams.CLUSTERS}"
_DELETED = {"KV-Operation": "DEL", "Nats-TTL": "720h"}
"""For a month it is remembered who has left, so that processes which were away do not bring them back."""


class MachinePlace(Message):
    """Where the machine Pods are that the nodes of a cluster run in."""

    namespace: str
    cluster: str = RUNTIME


class Member(Message):
    """A cluster that takes part, and where its credentials are to be found."""

    id: str
    secret: SecretKey | None = None
    file: str | None = None
    """A kubeconfig file that every process can read."""
    kinds: tuple[str, ...] = ()
    namespace: str = ""
    """The only one that may be read there, where that is so."""
    machines: MachinePlace | None = None
    """None if its nodes can be reached without a route of ours."""
    origin: Literal["person", "namespace", "controlplane", "settings", "provider"] = "person"
    """Who let it join. What a person did, only a person undoes."""
    asleep: bool = False
    """Its API server has ended until it is woken up. Its objects are not served, its addresses are kept."""


class Registry:
    """The clusters that take part, as this process knows them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.members: dict[str, Member] = {}
        self.complete = asyncio.Event()
        self._reading = _Reading()
        self._forgetful = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def left(self) -> Set[str]:
        """The clusters that are known to have left, and have not come back."""
        return self._reading.left

    def served(self) -> Set[str]:
        """The clusters whose own objects we serve. In provider clusters we only look after what we make."""
        return {
            cluster
            for cluster, member in self.members.items()
            if not (member.asleep or is_provider_cluster(cluster))
        }

    def asleep(self) -> Set[str]:
        """The clusters that have no API server at the moment, and will have one again."""
        return {cluster for cluster, member in self.members.items() if member.asleep}

    def on_change(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` after each change. Returns what ends that."""
        self._listeners.append(act)
        return lambda: self._listeners.remove(act)

    async def run(self) -> None:
        """Follow who joins and leaves, for ever."""
        while True:
            try:
                await self._follow()
            except WindowboxError as error:
                logger.debug("registry of clusters: %s", error)
                await asyncio.sleep(0.5)

    async def keep(self) -> None:
        """Tell the bus again what it has forgotten and this process has not, for ever."""
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
            raise Missing(f"no cluster {cluster!r} takes part; `windowbox clusters list` shows which do")
        await self._write(cluster, None, last.sequence)

    async def exchange(self, cluster: str, before: Member | None, after: Member | None) -> None:
        """Have `after` take part in place of `before`; None takes no part. Conflict if another does."""
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

    async def _follow(self) -> None:
        fresh = _Reading()
        filters = [subjects.entry(streams.CLUSTERS, ">")]
        async for stored in consumers.follow(self._bus, _STREAM, filters):
            if stored is not None:
                fresh.take(stored)
            if stored is None or self._reading is fresh:
                self._turn_to(fresh)

    def _turn_to(self, reading: _Reading) -> None:
        self._reading = reading
        # The bus says who has left. Those of whom it says nothing at all, it has forgotten.
        self.members = {member.id: member for member in self._forgotten()} | reading.members
        if self._forgotten():
            self._forgetful.set()
        self.complete.set()
        for act in self._listeners:
            act()

    def _forgotten(self) -> list[Member]:
        return [member for member in self.members.values() if member.id not in self._reading.heard]


class _Reading:
    """What one reading from the beginning has brought so far."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.left: set[str] = set()
        self.heard: set[str] = set()
        """All clusters of which anything was said, even if it was nonsense."""

    def take(self, stored: Stored) -> None:
        cluster = subjects.name_of_cluster(subjects.without(f"$KV.{streams.CLUSTERS}", stored.subject))
        self.heard.add(cluster)
        self.left.discard(cluster)
        if buckets.gone(stored):
            self.members.pop(cluster, None)
            self.left.add(cluster)
            return
        try:
            self.members[cluster] = _member(cluster, stored)
        except ValueError as error:
            # The other clusters must not suffer from it.
            logger.error("registry of clusters: %s is skipped: %s", stored.subject, error)


def _member(cluster: str, stored: Stored) -> Member:
    member = Member.model_validate_json(stored.data)
    if member.id != cluster:
        raise ValueError(f"it calls itself {member.id!r}")
    return member


def _subject(cluster: str) -> str:
    return subjects.entry(streams.CLUSTERS, subjects.of_cluster(cluster))
