"""Other objects that webhooks need: from the mirror on the bus, else from the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from bus import streams, subjects
from bus.connection import Bus
from bus.messages import Announcement
from webhooks.review import Found, Lookup
from windowbox.clients.kube import Kube
from windowbox.errors import Missing, WindowboxError
from windowbox.models.objects import Json
from windowbox.models.refs import RUNTIME, ObjectRef

_BUS_PATIENCE = 0.5
"""Seconds for the bus to answer before the API is asked."""
_API_PATIENCE = 10.0
_AT_ONCE = 32
"""Requests to the API at once: anybody who reaches the server can cause them."""


class Lookups:
    """Looks objects up, for one webhook server."""

    def __init__(self, kube: Kube, bus: Callable[[], Bus | None], mirrored: frozenset[str]) -> None:
        """`bus` is there while it is connected; kinds in `mirrored` are looked for there."""
        self._kube = kube
        self._bus = bus
        self._mirrored = mirrored
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._asking: dict[Lookup, asyncio.Task[Found]] = {}

    async def look(self, wanted: Lookup, seconds: float) -> Found:
        """The object, or why there is none, within so many seconds."""
        end = time.monotonic() + seconds
        found = await self._from_bus(wanted, min(_BUS_PATIENCE, seconds / 3))
        if found is not None:
            return Found(found)
        try:
            async with asyncio.timeout(end - time.monotonic()):
                return await asyncio.shield(self._from_api(wanted))
        except TimeoutError:
            return _too_slow(wanted)

    def _from_api(self, wanted: Lookup) -> asyncio.Task[Found]:
        """The request that asks for this object: one for all, so that no Shoot takes the places of others."""
        asking = self._asking.get(wanted)
        if asking is None:
            asking = self._asking[wanted] = asyncio.create_task(self._ask(wanted), name=f"look {wanted.name}")
            asking.add_done_callback(lambda _: self._asking.pop(wanted))
        return asking

    async def _ask(self, wanted: Lookup) -> Found:
        try:
            async with asyncio.timeout(_API_PATIENCE), self._room:
                object = await self._kube.get(wanted.resource, wanted.namespace, wanted.name)
        except Missing:
            return Found(None, f'{wanted.resource.id} "{wanted.name}" not found')
        except WindowboxError as error:
            return Found(None, str(error))
        except TimeoutError:
            return _too_slow(wanted)
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
