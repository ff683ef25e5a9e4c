"""Other objects that webhooks need: from the mirror on the bus, else from the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport.connection import Bus
from webhooks.review import Found, Lookup
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, WindowboxError
from windowbox.models.objects import Json
from windowbox.models.refs import RUNTIME, ObjectRef

_BUS_PATIENCE = 0.5
"""Seconds for the bus to answer before the API is asked."""
_API_PATIENCE = 10.0
_AT_ONCE = 32
"""Requests to the API at once: anybody who reaches the server can cause them."""
_MOST = 512
"""Objects that are asked for, or wait to be."""


@dataclass
class _Asking:
    """A request to the API, and how many wait for its answer."""

    task: asyncio.Task[Found | None]
    waiting: int = 0


class Lookups:
    """Looks objects up, for one webhook server."""

    def __init__(self, kube: Kube, bus: Callable[[], Bus | None], mirrored: frozenset[str]) -> None:
        """`bus` is there while it is connected; kinds in `mirrored` are looked for there."""
        self._kube = kube
        self._bus = bus
        self._mirrored = mirrored
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._asking: dict[Lookup, _Asking] = {}

    async def look(self, wanted: Lookup, seconds: float) -> Found:
        """The object, or why there is none, within so many seconds."""
        end = time.monotonic() + seconds
        found = await self._from_bus(wanted, min(_BUS_PATIENCE, seconds / 3))
        if found is not None:
            return Found(found)
        try:
            async with asyncio.timeout(end - time.monotonic()):
                # A request that began long ago may fail for its age: who came late asks anew.
                while (answer := await self._from_api(wanted)) is None:
                    pass
                return answer
        except TimeoutError:
            return _too_slow(wanted)

    async def _from_api(self, wanted: Lookup) -> Found | None:
        """The answer of the request for this object: one for all, so that no Shoot takes others' places.

        None if the API was too slow. The request ends with the last who waits for it.
        """
        asking = self._asking.get(wanted)
        if asking is None:
            if len(self._asking) >= _MOST:
                return Found(None, f'{wanted.resource.id} "{wanted.name}": too much is looked up just now')
            asking = _Asking(asyncio.create_task(self._ask(wanted), name=f"look {wanted.name}"))
            self._asking[wanted] = asking
            asking.task.add_done_callback(lambda _: self._forget(wanted, asking))
        asking.waiting += 1
        try:
            return await asyncio.shield(asking.task)
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                self._forget(wanted, asking)
                asking.task.cancel()

    def _forget(self, wanted: Lookup, asking: _Asking) -> None:
        if self._asking.get(wanted) is asking:
            del self._asking[wanted]

    async def _ask(self, wanted: Lookup) -> Found | None:
        try:
            async with asyncio.timeout(_API_PATIENCE), self._room:
                object = await self._kube.get(wanted.resource, wanted.namespace, wanted.name)
        except Missing:
            return Found(None, f'{wanted.resource.id} "{wanted.name}" not found')
        except WindowboxError as error:
            return Found(None, str(error))
        except TimeoutError:
            return None
        return Found(object.raw)

    async def _from_bus(self, wanted: Lookup, seconds: float) -> Json | None:
        bus = self._bus()
        if bus is None or not bus.connected or wanted.resource.id not in self._mirrored:
            return None
        ref = ObjectRef(RUNTIME, wanted.resource.id, wanted.namespace, wanted.name)
        try:
            stored = await bus.last(streams.OBJECTS, subjects.seen(ref), seconds)
        except WindowboxError:
            return None
        if stored is None:
            return None
        seen = Announcement(stored)
        return None if seen.gone or seen.omitted else seen.object().raw


def _too_slow(wanted: Lookup) -> Found:
    return Found(None, f'{wanted.resource.id} "{wanted.name}": the API is too slow')
