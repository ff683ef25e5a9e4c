"""Which clusters take part besides the runtime cluster. They join and leave at run time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bus import consumers, streams, subjects
from bus.connection import Bus, Stored
from bus.messages import Message
from windowbox.errors import Missing, WindowboxError

logger = logging.getLogger(__name__)

_STREAM = f"KV_{streams.CLUSTERS}"


class SecretKey(Message):
    """A place in a Secret of the runtime cluster. What stands there never travels on the bus."""

    namespace: str
    name: str
    key: str = "kubeconfig"


class Member(Message):
    """A cluster that takes part, and where its credentials are to be found."""

    id: str
    secret: SecretKey | None = None
    file: str | None = None
    """A kubeconfig file that every process can read."""
    kinds: tuple[str, ...] = ()


class Registry:
    """The clusters that take part, as this process knows them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.members: dict[str, Member] = {}
        self.complete = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, act: Callable[[], None]) -> None:
        self._listeners.append(act)

    async def run(self) -> None:
        """Follow who joins and leaves, for ever."""
        while True:
            try:
                await self._follow()
            except WindowboxError as error:
                logger.debug("registry of clusters: %s", error)
                await asyncio.sleep(0.5)

    async def join(self, member: Member) -> None:
        await self._bus.publish(_subject(member.id), member.encoded())

    async def leave(self, cluster: str) -> None:
        last = await self._bus.last(_STREAM, _subject(cluster))
        if last is None or "KV-Operation" in last.headers:
            raise Missing(f"no cluster {cluster!r} takes part; `windowbox clusters list` shows which do")
        await self._bus.publish(_subject(cluster), b"", {"KV-Operation": "DEL"}, expect_last=last.sequence)

    async def _follow(self) -> None:
        fresh: dict[str, Member] = {}
        filters = [f"$KV.{streams.CLUSTERS}.>"]
        async for stored in consumers.follow(self._bus, _STREAM, filters):
            if stored is not None:
                _take(fresh, stored)
            if stored is None or self.members is fresh:
                self.members = fresh
                self.complete.set()
                for act in self._listeners:
                    act()


def _take(members: dict[str, Member], stored: Stored) -> None:
    if "KV-Operation" in stored.headers:
        cluster = subjects.name_of_cluster(subjects.without(f"$KV.{streams.CLUSTERS}", stored.subject))
        members.pop(cluster, None)
        return
    try:
        member = Member.model_validate_json(stored.data)
    except ValueError as error:
        # The other clusters must not suffer from it.
        logger.error("registry of clusters: %s is left out: %s", stored.subject, error)
        return
    members[member.id] = member


def _subject(cluster: str) -> str:
    return f"$KV.{streams.CLUSTERS}.{subjects.of_cluster(cluster)}"
