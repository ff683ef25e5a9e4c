"""Drift: finds records that were changed on the name server, and enqueues them for repair."""

from __future__ import annotations

import asyncio
import logging

from bus import subjects
from bus.messages import Reason, Wish
from bus.workqueue.queue import Queue
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import WindowboxError
from workers.dns.record.claims import Claims
from workers.dns.record.orphans import OrphanedNames

logger = logging.getLogger(__name__)


class DriftCheck:
    """Compares the zones with the wanted records: periodically, when a name server comes back, and when a
    cluster has been listed.

    It does not write: it enqueues drifted records, since the queue keeps the order of changes of each.
    """

    def __init__(
        self, nameserver: Nameserver, claims: Claims, orphans: OrphanedNames, queue: Queue, interval: float
    ) -> None:
        self._nameserver = nameserver
        self._claims = claims
        self._orphans = orphans
        self._queue = queue
        self._interval = interval

    async def run(self) -> None:
        """Check for ever. Only the holder of the lease calls this."""
        await self._claims.complete()
        due = self._claims.newly_listed

        async def listen() -> None:
            async for zone in self._nameserver.reconnected():
                logger.info("zone %s: its name server is back; comparing", zone)
                due.set()

        listening = asyncio.create_task(listen(), name="drift: listen")
        try:
            while True:
                due.clear()
                await self._check()
                await self._orphans.check()
                try:
                    async with asyncio.timeout(self._interval):
                        await due.wait()
                except TimeoutError:
                    continue
        finally:
            listening.cancel()

    async def _check(self) -> None:
        for zone, idle in self._claims.idle().items():
            try:
                drifted = await self._nameserver.drifted(zone, [wanted for _, wanted in idle.values()])
                for record in drifted:
                    await self._queue.remind(subjects.key(idle[record][0]), Wish(reason=Reason.DRIFT))
            except WindowboxError as error:
                logger.info("zone %s cannot be compared: %s", zone, error)
                continue
            if drifted:
                logger.warning("zone %s: %d records drifted; repairing them", zone, len(drifted))
