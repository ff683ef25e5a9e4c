"""From changes to wishes: each pool says which changes concern which of its objects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from bus import consumers, streams, subjects
from bus.connection import Bus
from bus.consumers import Delivery
from bus.messages import TRACE, Announcement, Wish
from bus.queue import Queue
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.telemetry import tracing

logger = logging.getLogger(__name__)

_AT_ONCE = 256
_AGAIN = 1.0
_YOUNG = 20.0
"""Seconds an unfinished object is left to those who are at work on it, before a sweep asks for it."""


class EventMapping(Protocol):
    """What a pool has to say about the changes of its kinds."""

    kinds: tuple[str, ...]

    @property
    def owned(self) -> Collection[str]:
        """Those of the kinds whose objects the pool makes: changes to these may have to be put right."""

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        """The keys of the pool's objects that `change` concerns."""

    def unfinished(self, object: Object) -> bool:
        """Whether the object, as it is, waits for something that we owe it."""


class PreviousVersion:
    """The version before a change, fetched only by those who ask."""

    def __init__(self, bus: Bus, change: Announcement) -> None:
        self._bus = bus
        self._change = change

    async def object(self) -> Object | None:
        if not self._change.predecessor:
            return None
        stored = await self._bus.at(streams.OBJECTS, self._change.predecessor)
        if stored is None or stored.subject != self._change.stored.subject:
            return None
        before = Announcement(stored)
        return None if before.gone or before.omitted else before.object()


class Router:
    """Turns what is announced into wishes of one pool. Any number of them share the work."""

    def __init__(self, bus: Bus, queue: Queue, mapping: EventMapping) -> None:
        self._bus = bus
        self._queue = queue
        self._mapping = mapping
        self._filters = [subjects.seen_kind("*", kind) for kind in mapping.kinds]
        self._swept = [subjects.seen_kind("*", kind) for kind in mapping.kinds if kind not in mapping.owned]
        consumer = consumers.Consumer(
            streams.OBJECTS, f"route-{queue.pool}", tuple(self._filters), 10, deliver="last_per_subject"
        )
        self._changes = consumers.Pull(bus, consumer, _AT_ONCE)

    async def run(self) -> None:
        """Route until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_each(self._changes, self._route), name=f"{self._queue.pool}: changes")
            tasks.create_task(run_due(self._bus, self._queue), name=f"{self._queue.pool}: dues")

    async def sweep(self, interval: float) -> None:
        """Now and then look for what is owed and has got lost. For the holder of a lease; for ever."""
        position = 0
        while True:
            try:
                await self._queue.sweep(_YOUNG)
                position = await self._sweep_objects(position)
            except WindowboxError as error:
                logger.info("sweep of %s: %s", self._queue.pool, error)
            await asyncio.sleep(interval)

    async def _route(self, delivery: Delivery) -> None:
        change = Announcement(delivery.stored)
        with tracing.span(f"route {self._queue.pool}", delivery.headers.get(TRACE, "")):
            for key in await self._mapping.keys_for(change, PreviousVersion(self._bus, change)):
                await self._queue.wish(key, Wish(reason=self._reason(change)))
        await delivery.settle()

    def _reason(self, change: Announcement) -> str:
        return "drift" if subjects.seen_of_kind(change.stored.subject) in self._mapping.owned else "event"

    async def _sweep_objects(self, position: int) -> int:
        """Look at what was announced since `position`. Returns from where to look the next time."""
        end = int((await self._bus.api(f"STREAM.INFO.{streams.OBJECTS}"))["state"]["last_seq"])
        if end < position:  # the stream is a new one
            position = 0
        unfinished: dict[str, tuple[int, float]] = {}
        async for stored in consumers.snapshot(
            self._bus, streams.OBJECTS, self._swept, history=position > 0, since=position and position + 1
        ):
            change = Announcement(stored)
            unfinished.pop(stored.subject, None)
            if not change.gone and not change.omitted and self._mapping.unfinished(change.object()):
                unfinished[stored.subject] = stored.sequence, int(stored.time) / 1e9
        young = await self._ask_for(unfinished)
        return min([end, *(sequence - 1 for sequence in young)])

    async def _ask_for(self, unfinished: dict[str, tuple[int, float]]) -> list[int]:
        """Ask for what nobody is about to look at. Returns the sequences of what is too young to ask for."""
        horizon = time.time() - _YOUNG
        young = []
        for subject, (sequence, at) in unfinished.items():
            key = subjects.without("object", subject)
            if at > horizon:
                young.append(sequence)
            elif await self._bus.last(streams.LATER, subjects.later(self._queue.pool, key)) is None:
                await self._queue.remind(key, Wish(reason="sweep"))
        return young


async def run_due(bus: Bus, queue: Queue) -> None:
    """Let in what has come due, until cancelled."""
    await _each(consumers.Pull(bus, queue.due_consumer(), _AT_ONCE), queue.admit)


async def _each(pull: consumers.Pull, act: Callable[[Delivery], Awaitable[None]]) -> None:
    """`act` on every delivery, many at once. What fails is delivered again."""
    running: set[asyncio.Task[None]] = set()

    async def one(delivery: Delivery) -> None:
        try:
            await act(delivery)
        except WindowboxError as error:
            logger.info("%s: again in %s s: %s", delivery.subject, _AGAIN, error)
            with contextlib.suppress(WindowboxError):
                await delivery.give_back(_AGAIN)
        finally:
            pull.done()

    try:
        async for batch in pull.deliveries():
            for delivery in batch:
                task = asyncio.create_task(one(delivery), name=delivery.subject)
                running.add(task)
                task.add_done_callback(running.discard)
    finally:
        for task in running:
            task.cancel()
