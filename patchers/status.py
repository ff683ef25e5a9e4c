"""Writes the status that was reported, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import time

from bus import intents, streams, subjects
from bus.connection import Bus
from bus.messages import Call, Read, Wish
from bus.pool import Again, Item, Outcome, backoff
from patchers import events
from windowbox.clients.clusters import Clusters
from windowbox.errors import Conflict, Missing, PermanentError, TransientError
from windowbox.models.refs import RESOURCES
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_LONGEST_RETRY = 60.0


class StatusPatcher:
    """The handler of the pool `patch`: one item is one object whose report has changed."""

    def __init__(self, bus: Bus, clusters: Clusters, rate: float = 0.0) -> None:
        self._bus = bus
        self._clusters = clusters
        self._pace = Pace(rate)

    async def handle(self, item: Item) -> Outcome:
        reported = await intents.last(self._bus, item.key)
        intent = reported.intent
        if intent is None:
            return Outcome("nothing to do")
        subject = subjects.intent(item.key)
        item.reads.append(Read(stream=streams.INTENTS, subject=subject, sequence=reported.sequence))
        ref = subjects.ref(item.key)
        resource = RESOURCES[ref.kind]
        # The uid makes the API refuse a patch that was meant for an earlier object of this name.
        patch = {"metadata": {"uid": intent.uid}, "status": intent.patch}
        try:
            kube = await self._clusters.get(ref.cluster)
            await self._pace.wait()
            item.check()
            await kube.merge(resource, ref.namespace, ref.name, patch, part="status")
            if intent.event:
                await events.tell(kube, resource, ref, intent.uid, intent.event)
        except Missing:
            await intents.forget(self._bus, item.key, intent.uid)
            return self._counted(ref.kind, Outcome("gone"))
        except Conflict as error:
            # Another uid: the object was replaced. Anything else that conflicts passes by itself.
            if await self._replaced(item, intent.uid):
                return self._counted(ref.kind, Outcome("replaced"))
            return self._counted(ref.kind, self._again(item, error))
        except TransientError as error:
            return self._counted(ref.kind, self._again(item, error))
        except PermanentError as error:
            logger.error("%s: the status cannot be written: %s", ref, error)
            return self._counted(ref.kind, Outcome("refused", self._again(item, error).again, str(error)))
        item.calls.append(Call(door="status", request=patch, effect=True))
        state = str(intent.patch.get("lastOperation", {}).get("state", ""))
        return self._counted(ref.kind, Outcome("written", note=state))

    async def set_aside(self, item: Item) -> None:
        logger.error("%s: its status cannot be written without taking this process down", item.key)

    async def _replaced(self, item: Item, uid: str) -> bool:
        ref = subjects.ref(item.key)
        kube = await self._clusters.get(ref.cluster)
        try:
            return (await kube.get(RESOURCES[ref.kind], ref.namespace, ref.name)).uid != uid
        except Missing:
            return True

    def _again(self, item: Item, error: Exception) -> Outcome:
        attempt = item.wish.attempt + 1
        after = backoff(attempt, first=0.05, longest=_LONGEST_RETRY)
        return Outcome("again", Again(Wish(reason="retry", attempt=attempt), after), str(error))

    def _counted(self, kind: str, outcome: Outcome) -> Outcome:
        metrics.patches.labels(kind, "status", outcome.word).inc()
        return outcome


class Pace:
    """At most so many a second, evenly; 0 means any number."""

    def __init__(self, rate: float) -> None:
        self._step = 1 / rate if rate else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        if not self._step:
            return
        now = time.monotonic()
        turn = self._next = max(now, self._next + self._step)
        await asyncio.sleep(turn - now)
