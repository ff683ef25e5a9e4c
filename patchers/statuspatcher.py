"""Writes reported statuses and Events to the API. The only writer of status."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from typing import Any

from bus import intents, streams, subjects
from bus.clusters.clusters import Clusters
from bus.messages import Call, EventIntent, Read, Reason, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, backoff
from bus.transport.connection import Bus
from bus.workqueue.pool import Item
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, PermanentError, TransientError
from windowbox.kinds import RESOURCES
from windowbox.models.extensions import overtaken, spelled
from windowbox.models.objects import merge
from windowbox.models.refs import SERVICES, ObjectRef, Resource
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_LONGEST_RETRY = 60.0
_EVENTS = Resource("", "v1", "events", "Event")
_LONGEST_NOTE = 1024
_SOURCES = {SERVICES: "service-controller"}
"""The components in whose name Events of a kind are written, where users and their tests expect it."""


class StatusPatcher:
    """The handler of the pool `patch`: one item is one object with a report that is not written yet."""

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
        intent, ref = reported.intent, subjects.ref(item.key)
        outcome: Outcome
        try:
            if self._clusters.has_left(ref.cluster):
                raise Missing(f"cluster {ref.cluster!r} has left")
            kube = await self._clusters.get(ref.cluster)
            await self._limiter.wait()
            item.check()
            wanted = intent.patch and not intent.shown
            if wanted and (obsolete := await self._write(kube, ref, reported)):
                outcome = Done(obsolete)
            else:
                for event in intent.events:
                    await write_event(kube, RESOURCES[ref.kind], ref, intent.uid, event)
                if not intent.patch and not intent.orphans:
                    await self._bus.delete(streams.INTENTS, reported.sequence)
                outcome = Done("Events written")
                if wanted:
                    item.calls.append(Call(door="status", request=intent.patch, effect=True))
                    if not await intents.is_newest(self._bus, item.key, reported.sequence):
                        await intents.remind(self._bus, item.key)
                    outcome = Done(str(intent.patch.get("lastOperation", {}).get("state", "")))
        except Missing:
            await intents.forget(self._bus, item.key, intent.uid)
            outcome = Ignored("gone")
        except (TransientError, PermanentError) as error:
            if isinstance(error, PermanentError):
                logger.error("%s: the status cannot be written: %s", ref, error)
            attempt = item.wish.attempt + 1
            after = backoff(attempt, first=0.05, longest=_LONGEST_RETRY)
            outcome = Failed(str(error), RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), after))
        metrics.patches.labels(ref.kind, "status", outcome.result).inc()
        return outcome

    async def quarantine(self, item: Item) -> None:
        logger.error("%s: quarantined: writing its status has ended this process before", item.key)

    async def _write(self, kube: Kube, ref: ObjectRef, reported: intents.Reported) -> str:
        """Write the status, unless it is obsolete: then return why."""
        intent = reported.intent
        assert intent
        if intent.version:
            with contextlib.suppress(Conflict):
                await write_status(kube, ref, intent.patch, intent.version)
                return ""
        found = await kube.get(RESOURCES[ref.kind], ref.namespace, ref.name)
        if found.uid != intent.uid:
            return "its name belongs to another object now"
        if overtaken(intent.patch, found.status):
            return "a newer status has been written"  # the bus may have lost newer reports
        if not await intents.is_newest(self._bus, subjects.key(ref), reported.sequence):
            return "a newer report is written as it comes"
        patch = intent.patch_of(found.status)
        if merge(found.status, patch) != found.status:
            await write_status(kube, ref, patch, found.resource_version)
        return ""


async def write_status(kube: Kube, ref: ObjectRef, status: dict[str, Any], version: str) -> None:
    """Patch the status of this version of the object; Conflict if there is a newer one.

    A patch of a status does not compare the uid, but it does compare the resource version.
    """
    patch = {"metadata": {"resourceVersion": version}, "status": status}
    await kube.merge(RESOURCES[ref.kind], ref.namespace, ref.name, patch, part="status")


class RateLimiter:
    """Limits a rate to `rate` per second, evenly; 0: no limit."""

    def __init__(self, rate: float) -> None:
        self._step = 1 / rate if rate else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        if not self._step:
            return
        now = time.monotonic()
        turn = self._next = max(now, self._next + self._step)
        await asyncio.sleep(turn - now)


async def write_event(kube: Kube, resource: Resource, ref: ObjectRef, uid: str, event: EventIntent) -> None:
    """Create the Event, or count it if it exists. An Event that the API refuses fails nothing."""
    namespace = ref.namespace or "default"
    now = spelled(await kube.now())
    # The same note about the same object is the same Event.
    digest = hashlib.sha256(f"{uid}\0{event.reason}\0{event.note}".encode()).hexdigest()[:16]
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    event_object: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{ref.name[:200]}.{digest}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": version,
            "kind": resource.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.note[:_LONGEST_NOTE],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": _SOURCES.get(resource, "windowbox")},
    }
    name = event_object["metadata"]["name"]
    try:
        try:
            await kube.create(_EVENTS, namespace, event_object)
        except Conflict:
            before = await kube.get(_EVENTS, namespace, name)
            count = int(before.raw.get("count") or 1) + 1
            await kube.merge(
                _EVENTS, namespace, name, {"count": count, "lastTimestamp": event_object["lastTimestamp"]}
            )
    except PermanentError as error:
        logger.info("%s: no Event: %s", ref, error)
