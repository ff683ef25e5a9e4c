"""One kind of one cluster, mirrored: list, compare with what the bus knows, then watch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from bus import consumers, streams, subjects
from bus.connection import Bus, WrongSequence
from bus.messages import BODY, OPERATION, PREDECESSOR, TRACE, UID, VERSION, Operation
from windowbox.clients import apiresponses
from windowbox.clients.kube import Event, Kube, Page
from windowbox.errors import Superseded, TooLarge, Unreachable, WatchExpired
from windowbox.models.objects import Object
from windowbox.models.refs import SECRETS, Resource
from windowbox.telemetry import metrics, tracing

logger = logging.getLogger(__name__)

_UNFINISHED = 256
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
TOMBSTONE_SECONDS = 3600.0
"""How long the end of an object is remembered on the bus."""


class Known(NamedTuple):
    """What the bus holds of an object."""

    uid: str
    version: str
    sequence: int
    gone: bool
    at: float


class Change(NamedTuple):
    """What the bus is to learn of an object: a new version, or its end."""

    operation: Operation
    uid: str
    version: str
    body: bytes = b""


@dataclass
class Mirror:
    """Puts every change of a kind on the bus, once, in order for each object."""

    bus: Bus
    kube: Kube
    cluster: str
    resource: Resource
    page: int = 500
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the bus knows everything that there is."""

    def __post_init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._tail: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(_UNFINISHED)
        self._failed: asyncio.Future[None]
        self._version = ""

    @property
    def _secret(self) -> bool:
        return self.resource == SECRETS

    async def run(self) -> None:
        """Mirror until an error that only a new listing can repair."""
        self._failed = asyncio.get_running_loop().create_future()
        mirroring = asyncio.ensure_future(self._mirror())
        try:
            # What could not be published is noticed at once, even if nothing else changes for a long time.
            await asyncio.wait([mirroring, self._failed], return_when=asyncio.FIRST_COMPLETED)
            (self._failed if self._failed.done() else mirroring).result()
        finally:
            unfinished = [mirroring, self._failed, *self._tail.values()]
            for work in unfinished:
                work.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _mirror(self) -> None:
        await self._read_known()
        self._version = await self._list()
        self.listed.set()
        breaks = 0
        while True:
            before = self._version
            try:
                await self._watch()
                await self._forget_tombstones()
            except WatchExpired:
                logger.info("%s %s: watch expired; listing again", self.cluster, self.resource.id)
                await self._flush()
                self._version = await self._list()
            except Unreachable as error:
                if self.kube.stale:
                    raise  # trying again as we are is no use
                breaks = breaks + 1 if self._version == before else 1
                pause = min(5.0, 0.1 * 2**breaks)
                logger.info("%s %s: %s; again in %.1f s", self.cluster, self.resource.id, error, pause)
                await self._flush()
                await asyncio.sleep(pause)

    async def _read_known(self) -> None:
        """Learn from the bus what it knows already."""
        self._known = {}
        kind = subjects.seen_kind(self.cluster, self.resource.id)
        async for stored in consumers.snapshot(self.bus, streams.OBJECTS, [kind], headers_only=True):
            headers = stored.headers
            self._known[stored.subject] = Known(
                headers[UID],
                headers[VERSION],
                stored.sequence,
                headers[OPERATION] == "DELETED",
                int(stored.time) / 1e9,
            )

    async def _list(self) -> str:
        """Announce what has changed since the bus last heard of it. Returns where a watch may begin."""
        listed: set[str] = set()
        more = version = ""
        count = 0
        while True:
            page = await self._page(more)
            count += max(1, len(page.items))  # a server may go on with empty pages for ever
            self._check_number(count)
            # The first page's version: a watch from there misses nothing of what later pages may not show.
            version = version or page.resource_version
            for raw in page.items:
                listed.add(await self._announce("LISTED", raw))
            more = page.more
            if not more:
                break
        for subject, known in list(self._known.items()):
            if subject not in listed and not known.gone:
                await self._enqueue(subject, Change("DELETED", known.uid, known.version))
        await self._flush()
        # Whoever reads the stream from its beginning knows here that nothing is missing.
        await self.bus.publish(subjects.listed(self.cluster, self.resource.id), b"")
        return version

    async def _page(self, more: str) -> Page:
        """The next page; from now on with fewer objects if these are too much at once."""
        while True:
            try:
                return await self.kube.page(
                    self.resource, limit=self.page, more=more, metadata_only=self._secret
                )
            except TooLarge:
                if self.page == 1:
                    raise
                self.page = max(1, self.page // 4)

    def _check_number(self, objects: int) -> None:
        if objects > self.kube.limits.objects:
            most = self.kube.limits.objects
            raise TooLarge(f"{self.cluster} has more than {most:,} {self.resource.id}: no more are watched")

    async def _watch(self) -> None:
        """Announce changes until the server ends the watch."""
        async for events in self.kube.watch(self.resource, self._version, metadata_only=self._secret):
            for event in events:
                await self._handle(event)
            self._version = str(events[-1].object["metadata"]["resourceVersion"])
        await self._flush()

    async def _handle(self, event: Event) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                await self._announce("ADDED" if event.type == "ADDED" else "MODIFIED", event.object)
            case "DELETED":
                object = Object(event.object)
                subject = subjects.seen(object.ref(self.cluster, self.resource.id))
                await self._enqueue(subject, Change("DELETED", object.uid, object.resource_version))

    async def _announce(self, operation: Operation, raw: dict[str, Any]) -> str:
        object = Object(raw)
        subject = subjects.seen(object.ref(self.cluster, self.resource.id))
        known = self._known.get(subject)
        if known is None:
            self._check_number(len(self._known) + 1)
        if not (known and known.version == object.resource_version and not known.gone):
            body = _encoded(redacted(raw, secret=self._secret))
            await self._enqueue(subject, Change(operation, object.uid, object.resource_version, body))
        return subject

    async def _enqueue(self, subject: str, change: Change) -> None:
        """Publish after the object's former message, beside those of other objects."""
        await self._room.acquire()
        before = self._tail.get(subject)
        task = asyncio.create_task(self._publish(before, subject, change, time.perf_counter()), name=subject)
        self._tail[subject] = task
        task.add_done_callback(lambda done: self._published(subject, done))

    async def _publish(
        self, before: asyncio.Task[None] | None, subject: str, change: Change, seen: float
    ) -> None:
        if before:
            await before
        known = self._known.get(subject)
        predecessor = known.sequence if known else 0
        headers = {
            OPERATION: change.operation,
            UID: change.uid,
            VERSION: change.version,
            PREDECESSOR: str(predecessor),
            TRACE: tracing.fresh(),
        }
        body = change.body
        if len(body) + 4096 > self.bus.max_payload:
            headers[BODY], body = "omitted", b""
        try:
            sequence = await self.bus.publish(subject, body, headers, expect_last=predecessor)
        except WrongSequence as error:
            # Somebody else is at work on this kind, or the bus has forgotten something.
            raise Superseded(f"{subject} is not as we left it") from error
        assert sequence is not None  # no message id, so never a duplicate
        gone = change.operation == "DELETED"
        self._known[subject] = Known(change.uid, change.version, sequence, gone, time.time())
        metrics.events_seen.labels(self.cluster, self.resource.id, change.operation).inc()
        metrics.watch_lag.labels(self.resource.id).observe(time.perf_counter() - seen)

    def _published(self, subject: str, task: asyncio.Task[None]) -> None:
        self._room.release()
        if self._tail.get(subject) is task:
            del self._tail[subject]
        if not task.cancelled() and (error := task.exception()) and not self._failed.done():
            self._failed.set_exception(error)

    async def _flush(self) -> None:
        """Wait until all is published; what failed is raised here."""
        if self._tail:
            await asyncio.wait(list(self._tail.values()))
        if self._failed.done():
            self._failed.result()

    async def _forget_tombstones(self) -> None:
        """Take out of the stream what ended long ago."""
        horizon = time.time() - TOMBSTONE_SECONDS
        for subject, known in list(self._known.items()):
            if known.gone and known.at < horizon:
                await self.bus.purge(streams.OBJECTS, subject, known.sequence + 1)
                del self._known[subject]


def redacted(raw: Mapping[str, Any], *, secret: bool) -> dict[str, Any]:
    """The object without what nobody needs, and without what nobody may see."""
    metadata = {k: v for k, v in raw.get("metadata", {}).items() if k != "managedFields"}
    if annotations := metadata.get("annotations"):
        # kubectl keeps a copy of the whole object here, of a Secret's data too.
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
    if secret:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    return {**raw, "metadata": metadata}


def _encoded(object: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(object)
    except orjson.JSONEncodeError:
        return orjson.dumps(apiresponses.shallow(object))  # nested deeper than can be written
