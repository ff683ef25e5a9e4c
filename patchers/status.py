"""Writes reported status to the API. The only writer of status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from bus import intents, streams, subjects
from bus.clusters.clusters import Clusters
from bus.messages import Call, Read, Reason, StatusIntent, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, backoff
from bus.transport.connection import Bus
from bus.workqueue.pool import Item
from patchers import events
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, PermanentError, TransientError
from windowbox.kinds import RESOURCES
from windowbox.models.extensions import overtaken
from windowbox.models.refs import ObjectRef
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_LONGEST_RETRY = 60.0


class StatusPatcher:
    """The handler of the pool `patch`: one item is one object whose report has changed."""

    def __init__(self, bus: Bus, clusters: Clusters, rate: float = 0.0) -> None:
        self._bus = bus
        self._clusters = clusters
        self._limiter = RateLimiter(rate)

    async def handle(self, item: Item) -> Outcome:
        reported = await intents.last(self._bus, item.key)
        if reported.intent is None:
            return Ignored()
        subject = subjects.intent(item.key)
        item.reads.append(Read(stream=streams.INTENTS, subject=subject, sequence=reported.sequence))
        outcome = await self._outcome(item, reported.intent, reported.sequence)
        metrics.patches.labels(subjects.ref(item.key).kind, "status", outcome.result).inc()
        return outcome

    async def quarantine(self, item: Item) -> None:
        logger.error("%s: quarantined: writing its status has ended this process before", item.key)

    async def _outcome(self, item: Item, intent: StatusIntent, sequence: int) -> Outcome:
        ref = subjects.ref(item.key)
        try:
            if self._clusters.has_left(ref.cluster):
                raise Missing(f"cluster {ref.cluster!r} has left")
            return await self._write_report(item, ref, intent, sequence)
        except Missing:
            await intents.forget(self._bus, item.key, intent.uid)
            return Ignored("gone")
        except TransientError as error:
            return self._retry(item, error)
        except PermanentError as error:
            logger.error("%s: the status cannot be written: %s", ref, error)
            return self._retry(item, error)

    async def _write_report(self, item: Item, ref: ObjectRef, intent: StatusIntent, sequence: int) -> Outcome:
        """Write the status and the Events."""
        kube = await self._clusters.get(ref.cluster)
        await self._limiter.wait()
        item.check()
        wanted = intent.patch and not intent.shown
        if wanted and (obsolete := await self._write(kube, ref, intent)):
            return Done(obsolete)
        for event in intent.events:
            await events.write(kube, RESOURCES[ref.kind], ref, intent.uid, event)
        if not intent.patch and not intent.orphans:
            await self._bus.delete(streams.INTENTS, sequence)
        if not wanted:
            return Done("Events written")
        item.calls.append(Call(door="status", request=intent.patch, effect=True))
        state = str(intent.patch.get("lastOperation", {}).get("state", ""))
        return Done(state)

    async def _write(self, kube: Kube, ref: ObjectRef, intent: StatusIntent) -> str:
        """Write the status. Returns why it is obsolete, if it is."""
        if intent.version:
            # A patch of a status does not compare the uid, but it does compare the resource version.
            with contextlib.suppress(Conflict):
                await self._patch(kube, ref, intent.patch, intent.version)
                return ""
        found = await kube.get(RESOURCES[ref.kind], ref.namespace, ref.name)
        if found.uid != intent.uid:
            return "its name belongs to another object now"
        if overtaken(intent.patch, found.status):
            return "a newer status has been written"  # the bus may have lost newer reports
        await self._patch(kube, ref, intent.patch_of(found.status), found.resource_version)
        return ""

    async def _patch(self, kube: Kube, ref: ObjectRef, status: dict[str, Any], version: str) -> None:
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        await kube.merge(RESOURCES[ref.kind], ref.namespace, ref.name, patch, part="status")

    def _retry(self, item: Item, error: Exception) -> Outcome:
        attempt = item.wish.attempt + 1
        after = backoff(attempt, first=0.05, longest=_LONGEST_RETRY)
        return Failed(str(error), RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), after))


class RateLimiter:
    """Limits a rate to so many per second, evenly; 0: no limit."""

    def __init__(self, rate: float) -> None:
        self._step = 1 / rate if rate else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        if not self._step:
            return
        now = time.monotonic()
        turn = self._next = max(now, self._next + self._step)
        await asyncio.sleep(turn - now)
