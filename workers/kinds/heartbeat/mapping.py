"""Mapping: from a changed Lease to the key of the heartbeat; and the first wish for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from bus import subjects
from bus.messages import Announcement, Reason, Wish
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import HEARTBEATS, ObjectRef
from workers.kinds.heartbeat import wanted

logger = logging.getLogger(__name__)

_AGAIN = 1.0
_MISSED_INTERVALS = 5
"""After so many intervals somebody asks, should the bus have lost the wish that was to come back."""


class HeartbeatMapping:
    """What others do to our Lease, and what happened to it while nobody watched."""

    kinds: tuple[str, ...] = (HEARTBEATS.id,)
    owned: tuple[str, ...] = ()

    def __init__(self, lease: ObjectRef) -> None:
        self._lease = lease

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        key = subjects.without("object", change.stored.subject)
        if subjects.ref(key) != self._lease or change.operation == "ADDED":
            return []
        if change.operation != "MODIFIED" or change.omitted:
            return [key]
        old = await before.object()
        return [key] if old is None or wanted.changed_by_others(old, change.object()) else []

    def unfinished(self, object: Object) -> bool:
        return object.ref(self._lease.cluster, self._lease.kind) == self._lease


async def request_first_run(bus: Bus, queue: Queue, lease: ObjectRef, interval: float) -> None:
    """Make the first wish: at the start, and whenever the bus may have forgotten it. For ever."""
    back = asyncio.Event()
    with bus.on_reconnect(back.set):
        while True:
            back.clear()
            try:
                await queue.remind(subjects.key(lease), Wish(reason=Reason.START))
            except WindowboxError as error:
                logger.info("heartbeat: %s; again in %s s", error, _AGAIN)
                await asyncio.sleep(_AGAIN)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MISSED_INTERVALS * interval):
                    await back.wait()
