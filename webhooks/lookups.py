"""Looks up the other objects that webhooks need: in the mirror on the bus, else in the API."""

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
from windowbox.models.objects import Json, Object
from windowbox.models.refs import CLOUD_PROFILES, NAMESPACED_CLOUD_PROFILES, RUNTIME, ObjectRef

_BUS_PATIENCE = 0.5
"""Seconds for the bus to answer before the API is asked."""
_API_PATIENCE = 10.0
_AT_ONCE = 32
"""Requests to the API at once: every client of the webhook server can cause them."""
_SHARED = (CLOUD_PROFILES, NAMESPACED_CLOUD_PROFILES)
_MOST_PROFILES = 8
_MOST = 512
"""Objects with a request to the API that runs or waits."""


@dataclass
class _Request:
    """A request to the API, and how many reviews wait for its answer."""

    task: asyncio.Task[Found | None]
    waiting: int = 0


class Lookups:
    """Looks objects up, for one webhook server."""

    def __init__(self, kube: Kube, bus: Callable[[], Bus | None], mirrored: frozenset[str]) -> None:
        """`bus` returns the bus while it is connected; it mirrors the kinds in `mirrored`."""
        self._kube = kube
        self._bus = bus
        self._mirrored = mirrored
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._requests: dict[Lookup, _Request] = {}
        self._profiles: dict[str, Object] = {}
        """By the keys of lookups, the latest last."""

    async def look(self, wanted: Lookup, seconds: float) -> Found:
        """The object, or the reason why there is none, within so many seconds."""
        if not wanted.name:
            return Found(None, f'{wanted.resource.id} "" not found', missing=True)
        end = time.monotonic() + seconds
        found = await self._from_bus(wanted, min(_BUS_PATIENCE, seconds / 3))
        if found is not None:
            return Found(found)
        try:
            async with asyncio.timeout(end - time.monotonic()):
                # A shared request may time out because it began long before this review: retry.
                while (answer := await self._from_api(wanted)) is None:
                    pass
                return answer
        except TimeoutError:
            return Found(None, f'{wanted.resource.id} "{wanted.name}": the API is too slow')

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

    async def _from_api(self, wanted: Lookup) -> Found | None:
        """The answer of the request for this object, which all reviews share; None if the API was too slow.

        Sharing keeps one Shoot's reviews from taking all places. The last review that gives up cancels it.
        """

        async def get() -> Found | None:
            try:
                async with asyncio.timeout(_API_PATIENCE), self._room:
                    object = await self._kube.get(wanted.resource, wanted.namespace, wanted.name)
            except Missing:
                return Found(None, f'{wanted.resource.id} "{wanted.name}" not found', missing=True)
            except WindowboxError as error:
                return Found(None, str(error))
            except TimeoutError:
                return None
            return Found(self._shared(wanted, object))

        request = self._requests.get(wanted)
        if request is None:
            if len(self._requests) >= _MOST:
                return Found(None, f'{wanted.resource.id} "{wanted.name}": too much is looked up just now')
            request = _Request(asyncio.create_task(get(), name=f"look {wanted.name}"))
            self._requests[wanted] = request
            request.task.add_done_callback(lambda _: self._forget(wanted, request))
        request.waiting += 1
        try:
            return await asyncio.shield(request.task)
        finally:
            request.waiting -= 1
            if not request.waiting:
                self._forget(wanted, request)
                request.task.cancel()

    def _shared(self, wanted: Lookup, object: Object) -> Json:
        """The content; of a CloudProfile that has not changed, the very content of the last time.

        Many Shoots share a CloudProfile, whose config is decoded once for the same content.
        """
        if wanted.resource not in _SHARED:
            return object.raw
        known = self._profiles.pop(wanted.key, object)
        if (known.uid, known.resource_version) != (object.uid, object.resource_version):
            known = object
        self._profiles[wanted.key] = known
        if len(self._profiles) > _MOST_PROFILES:
            del self._profiles[next(iter(self._profiles))]
        return known.raw

    def _forget(self, wanted: Lookup, request: _Request) -> None:
        if self._requests.get(wanted) is request:
            del self._requests[wanted]
