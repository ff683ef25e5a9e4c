"""Limits shared by the mirrors of a process: concurrent readings of the bus, and lists of API servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from bus import streams, subjects
from bus.messages import BODY, OPERATION, UID, VERSION
from bus.transport import consumers
from bus.transport.connection import Bus
from watchers.quota import Budget, CapacityCheck
from windowbox.errors import Unreachable
from windowbox.settings.bussettings import Retention

_READINGS = 8
_UNFINISHED = 1024
_LISTINGS = 64
_LISTINGS_OF_FAILED = 16
"""Clusters that have just failed wait for one another: a hundred of them must not delay the others."""


class Known(NamedTuple):
    """What the bus holds of an object."""

    uid: str
    version: str
    sequence: int
    gone: bool
    at: float
    size: int
    """Bytes of the body."""
    omitted: bool = False
    """Whether it is there without its content."""


KnownObjects = dict[str, Known]
"""By subject."""


def _no_doubt() -> None:
    return None


class Turn:
    """A turn at something of which there are so many; it may be given back early."""

    def __init__(self, lane: asyncio.Semaphore) -> None:
        self._lane: asyncio.Semaphore | None = lane

    def give_back(self) -> None:
        if self._lane:
            self._lane.release()
        self._lane = None


class Shared:
    """Bounds what mirrors do at once when all of them begin: thousands of consumers and listings."""

    def __init__(
        self,
        bus: Bus,
        doubt: Callable[[], None] = _no_doubt,
        retention: Retention = streams.DEFAULT,
        share: float = 1.0,
    ) -> None:
        """`doubt` is told when the bus failed in a way that a loss of OBJECTS may have caused.

        `share` is the part of OBJECTS that one cluster may take.
        """
        self.doubt = doubt
        self.capacity = CapacityCheck(bus, retention)
        self.budget = Budget(retention, share)
        self._bus = bus
        self._reading = asyncio.Semaphore(_READINGS)
        self._wanted: dict[str, dict[str, asyncio.Future[KnownObjects]]] = {}
        self._readings: set[asyncio.Task[None]] = set()
        self.publishing = asyncio.Semaphore(_UNFINISHED)
        """A turn for each message that is not acknowledged yet: their bodies are in memory."""
        self._turns = asyncio.Semaphore(_LISTINGS)
        self._turns_of_failed = asyncio.Semaphore(_LISTINGS_OF_FAILED)
        self._failed: set[str] = set()

    async def aclose(self) -> None:
        """End the readings that are under way."""
        for task in self._readings:
            task.cancel()
        if self._readings:
            await asyncio.wait(self._readings)

    async def known(self, cluster: str, kind: str) -> KnownObjects:
        """What the bus holds of a kind now. Kinds of a cluster that ask together are read by one consumer."""
        wanted = self._wanted.setdefault(cluster, {})
        if not wanted:
            task = asyncio.create_task(self._read(cluster), name=f"{cluster}: read what the bus knows")
            self._readings.add(task)
            task.add_done_callback(self._readings.discard)
        answer = wanted.setdefault(kind, asyncio.get_running_loop().create_future())
        # Another may wait for the same answer.
        return dict(await asyncio.shield(answer))

    async def _read(self, cluster: str) -> None:
        async with self._reading:
            wanted = self._wanted.pop(cluster)
            try:
                found = await self._snapshot(cluster, list(wanted))
            except Exception as error:  # those who asked know what to make of it
                for answer in wanted.values():
                    answer.set_exception(error)
                    answer.exception()  # whoever asked may be gone
            else:
                for kind, answer in wanted.items():
                    answer.set_result(found[kind])

    async def _snapshot(self, cluster: str, kinds: list[str]) -> dict[str, KnownObjects]:
        found: dict[str, KnownObjects] = {kind: {} for kind in kinds}
        filters = [subjects.seen_kind(cluster, kind) for kind in kinds]
        async for stored in consumers.snapshot(self._bus, streams.OBJECTS, filters, headers_only=True):
            headers = stored.headers
            found[subjects.seen_of_kind(stored.subject)][stored.subject] = Known(
                headers[UID],
                headers[VERSION],
                stored.sequence,
                headers[OPERATION] == "DELETED",
                int(stored.time) / 1e9,
                int(headers.get("Nats-Msg-Size", 0)),
                headers.get(BODY) == "omitted",
            )
        return found

    @contextlib.asynccontextmanager
    async def listing(self, cluster: str) -> AsyncIterator[Turn]:
        """A turn to list a kind of the cluster."""
        lane = self._turns
        await lane.acquire()
        if cluster in self._failed:  # perhaps while this one waited
            lane.release()
            lane = self._turns_of_failed
            await lane.acquire()
        turn = Turn(lane)
        try:
            yield turn
        except Unreachable:
            self._failed.add(cluster)
            raise
        else:
            self._failed.discard(cluster)
        finally:
            turn.give_back()
