"""Mirrors one kind of one cluster: list, compare with OBJECTS, then watch."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from bus import streams, subjects
from bus.messages import BODY, FORMER, OPERATION, PREDECESSOR, TRACE, UID, VERSION, Operation
from bus.transport.connection import Bus, Full, Headers, WrongSequence
from watchers import continuity
from watchers.continuity import Permit, Why, Witness
from watchers.limits import Account, Content, Known, Shared, Turn
from windowbox.clients.kubernetes import apiresponses
from windowbox.clients.kubernetes.kube import PASSING, Kube
from windowbox.errors import Superseded, TooLarge, TransientError, Unreachable, WatchExpired, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import SECRETS, Resource
from windowbox.telemetry import metrics, tracing

logger = logging.getLogger(__name__)

_UNFINISHED = 256
_UNUSED = frozenset(
    {
        # Copies of the whole object, of a Secret's data too.
        "kubectl.kubernetes.io/last-applied-configuration",
        "banzaicloud.com/last-applied",
        "objectset.rio.cattle.io/applied",
        "control-plane.alpha.kubernetes.io/leader",
        "endpoints.kubernetes.io/last-change-trigger-time",
    }
)
"""Annotations that windowbox neither reads nor writes."""
_LONGEST_PAUSE = 5.0


Before = asyncio.Task[None] | None
"""The task that publishes the former change of the same object."""


class _Passing(NamedTuple):
    """A version that is announced only if no other one follows soon."""

    raw: dict[str, Any]
    timer: asyncio.TimerHandle


class Change(NamedTuple):
    """A change to publish: a new version of an object, or its deletion."""

    operation: Operation
    uid: str
    version: str
    body: bytes = b""


@dataclass
class Mirror:
    """Publishes each change of a kind once, in order for each object."""

    bus: Bus
    kube: Kube
    cluster: str
    resource: Resource
    shared: Shared
    permit: Permit = field(default_factory=Permit)
    page: int = 500
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once all existing objects are on the bus."""
    why: Why = "start"
    """Why it lists first."""

    def __post_init__(self) -> None:
        self._account = Account(self.shared.budget, self.cluster)
        self._known = Content()
        self._tail: dict[str, asyncio.Task[None]] = {}
        self._passing: dict[str, _Passing] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_UNFINISHED)
        self._failed: asyncio.Future[None]
        self._marker: Witness | None = None
        """The message that marks the end of the listing."""
        self._listing: Turn | None = None
        self._publishing: set[asyncio.Task[None]] = set()
        """Tasks that hold a slot of `shared.publishing`."""
        self._version = ""
        self._forgetting: asyncio.Task[None] | None = None
        self._refused = False
        """Whether a listing had objects beyond the share of the cluster."""

    @property
    def newest(self) -> Witness | None:
        """The newest known message of this kind."""
        marker = self._marker
        if not (known_objects := self._known.items()):
            return marker
        subject, known = max(known_objects, key=lambda one: one[1].sequence)
        newest = Witness(known.sequence, subject, known.uid, known.version)
        return max(newest, marker) if marker else newest

    @property
    def _secret(self) -> bool:
        return self.resource == SECRETS

    async def run(self) -> None:
        """Mirror until an error that only a new listing can repair."""
        self._failed = asyncio.get_running_loop().create_future()
        mirroring = asyncio.ensure_future(self._mirror())
        try:
            # A failed publish ends the mirror at once, even if no other change comes.
            await asyncio.wait([mirroring, self._failed], return_when=asyncio.FIRST_COMPLETED)
            (self._failed if self._failed.done() else mirroring).result()
        finally:
            self._drop_passing()
            unfinished = [mirroring, self._failed, *self._tail.values(), *self._late]
            unfinished += [self._forgetting] if self._forgetting else []
            for work in unfinished:
                work.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
            self._account.close()

    async def _mirror(self) -> None:
        await self.permit.wait()
        held = await self.shared.known(self.cluster, self.resource.id)
        for subject in sorted(held, key=lambda one: held[one].sequence):
            self._known.put(subject, held[subject])
            self._account.count(held[subject])
        self._begin_to_forget()
        self._version = await self._list(self.why)
        self.listed.set()
        breaks = 0
        while True:
            before = self._version
            try:
                await self._watch()
                self._begin_to_forget()
            except WatchExpired:  # 410: etcd has compacted the history that the watch needs
                logger.info("%s %s: watch expired; listing again", self.cluster, self.resource.id)
                await self._flush()
                self._version = await self._list("expired")
            except Unreachable as error:
                if self.kube.stale:
                    raise  # a retry needs a new client
                breaks = breaks + 1 if self._version == before else 1
                pause = min(_LONGEST_PAUSE, 0.1 * 2**breaks) * random.uniform(0.7, 1.3)
                logger.info("%s %s: %s; again in %.1f s", self.cluster, self.resource.id, error, pause)
                await self._flush()
                await asyncio.sleep(pause)

    async def _list(self, why: Why) -> str:
        """List, and announce what differs from the bus. Returns the resource version to watch from."""
        metrics.listings.labels(why).inc()
        level = logging.DEBUG if why == "start" else logging.INFO
        logger.log(level, "%s %s: listing: %s", self.cluster, self.resource.id, why)
        self._refused = False
        self._drop_passing()  # the listing shows them, or newer ones
        listed, version = set[str](), ""
        async with self.shared.listing(self.cluster) as self._listing:
            async for page in self.kube.pages(self.resource, limit=self.page, metadata_only=self._secret):
                # A watch from the first page's version misses no change that later pages do not show.
                version = version or page.resource_version
                for raw in page.items:
                    listed.add(await self._announce("LISTED", raw))
        for subject, known in self._known.items():
            if subject not in listed and not known.gone:
                await self._enqueue(subject, Change("DELETED", known.uid, known.version))
        await self._flush()
        if self._refused:
            raise self._exhausted()  # the next listing has the room of deleted objects
        # Readers of the stream learn from this message that the listing is complete.
        subject = subjects.listed(self.cluster, self.resource.id)
        self._marker = Witness(await self._store(subject, b"", {}, None), subject, "", "")
        there = [known.sequence for _, known in self._known.items() if not known.gone]
        await continuity.require_held(self.bus, subject, there)
        return version

    async def _watch(self) -> None:
        """Announce changes until the server ends the watch."""
        async for events in self.kube.watch(self.resource, self._version, metadata_only=self._secret):
            for event in events:
                match event.type:
                    case "ADDED":
                        await self._announce("ADDED", event.object)
                    case "MODIFIED":
                        await self._modified(event.object)
                    case "DELETED":
                        object = Object(event.object)
                        subject = subjects.seen(object.ref(self.cluster, self.resource.id))
                        await self._announce_passing(subject)
                        await self._enqueue(subject, Change("DELETED", object.uid, object.resource_version))
            # Also that of a BOOKMARK: it tells how far the watch has come while no object changes.
            self._version = str(events[-1].object["metadata"]["resourceVersion"])
        await self._flush()

    async def _modified(self, raw: dict[str, Any]) -> None:
        """Announce a new version in place of a passing one; a passing one only after a while."""
        object = Object(raw)
        subject = subjects.seen(object.ref(self.cluster, self.resource.id))
        if replaced := self._passing.pop(subject, None):
            replaced.timer.cancel()
        if not self.kube.end_passing(object.uid):
            await self._announce("MODIFIED", raw)
            return

        def over() -> None:
            task = asyncio.create_task(self._announce_passing(subject), name=subject)
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            task.add_done_callback(self._note_failure)

        timer = asyncio.get_running_loop().call_later(PASSING, over)
        self._passing[subject] = _Passing(raw, timer)

    async def _announce_passing(self, subject: str) -> None:
        if passing := self._passing.pop(subject, None):
            passing.timer.cancel()
            await self._announce("MODIFIED", passing.raw)

    def _drop_passing(self) -> None:
        for passing in self._passing.values():
            passing.timer.cancel()
        self._passing.clear()

    async def _announce(self, operation: Operation, raw: dict[str, Any]) -> str:
        object = Object(raw)
        subject = subjects.seen(object.ref(self.cluster, self.resource.id))
        known = self._known.get(subject)
        most = self.kube.limits.listing.objects
        if (known is None or known.gone) and self._known.existing >= most:
            raise TooLarge(f"{self.cluster} has more than {most:,} {self.resource.id}: no more are watched")
        unchanged = known and known.version == object.resource_version and not known.gone
        if unchanged and not (known and known.omitted):
            return subject
        redacted_object = redacted(raw, secret=self._secret)
        try:
            body = orjson.dumps(redacted_object)
        except orjson.JSONEncodeError:  # nested deeper than orjson writes
            body = orjson.dumps(apiresponses.shallow(redacted_object))
        if not unchanged or self._fits(body):
            await self._enqueue(subject, Change(operation, object.uid, object.resource_version, body))
        return subject

    def _fits(self, body: bytes, former: int = 0) -> bool:
        """Whether the body fits into a message and into the share of the cluster."""
        return len(body) + 4096 <= self.bus.max_payload and self._account.has_room(len(body), former)

    def _exhausted(self) -> TooLarge:
        return TooLarge(f"{self.cluster} has far more than its share of the bus: see objects.share")

    async def _enqueue(self, subject: str, change: Change) -> None:
        """Publish in a task: in order for one object, concurrently with others."""
        seen = time.perf_counter()
        await self._begin(subject, lambda before: self._publish(before, subject, change, seen))

    async def _begin(self, subject: str, act: Callable[[Before], Coroutine[Any, Any, None]]) -> None:
        await self._room.acquire()
        await self._permitted()
        await self.shared.publishing.acquire()
        task = asyncio.create_task(act(self._tail.get(subject)), name=subject)
        self._tail[subject] = task
        self._publishing.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._room.release()
            self._give_back(task)
            if self._tail.get(subject) is task:
                del self._tail[subject]
            self._note_failure(task)

        task.add_done_callback(ended)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self._failed.done():
            self._failed.set_exception(error)

    async def _permitted(self) -> None:
        """Wait for the permit, and release slots for other mirrors meanwhile: a lease may take long."""
        if not self.permit.given:
            if self._listing:
                self._listing.give_back()
            for task in list(self._publishing):
                self._give_back(task)
            await self.permit.wait()

    def _give_back(self, task: asyncio.Task[None]) -> None:
        if task in self._publishing:
            self._publishing.remove(task)
            self.shared.publishing.release()

    async def _publish(self, before: Before, subject: str, change: Change, seen: float) -> None:
        if before:
            await before
        known = self._known.get(subject)
        predecessor = known.sequence if known else 0
        there = known if known and not known.gone else None
        gone, body = change.operation == "DELETED", change.body
        if there is None and not gone and self._account.exhausted:
            if change.operation != "LISTED":
                raise self._exhausted()
            self._refused = True  # deletions that the listing shows are published first
            return
        headers = {
            OPERATION: change.operation,
            UID: change.uid,
            VERSION: change.version,
            PREDECESSOR: str(predecessor),
            TRACE: tracing.fresh(),
        }
        if omitted := not self._fits(body, there.size if there else 0):
            headers[BODY], body = "omitted", b""
        size = len(body)
        if gone and known and known.size:
            size = known.size
            headers[FORMER] = str(size)
        new = Known(change.uid, change.version, 0, gone, 0.0, size, omitted)
        self._account.count(new)
        if known:
            self._account.drop(known)
        sequence = await self._store(subject, body, headers, predecessor)
        self._known.put(subject, new._replace(sequence=sequence, at=self._now()))
        if gone:
            self._begin_to_forget()
        metrics.events_seen.labels(self.cluster, self.resource.id, change.operation).inc()
        metrics.watch_lag.labels(self.resource.id).observe(time.perf_counter() - seen)

    async def _store(self, subject: str, body: bytes, headers: Headers, predecessor: int | None) -> int:
        """Publish once permitted, and retry while the bus is unreachable or full. Returns the sequence."""
        attempts = 0
        while True:
            await self._permitted()
            try:
                try:
                    sequence = await self.bus.publish(subject, body, headers, expect_last=predecessor)
                except WrongSequence as error:
                    # The response to the previous attempt may have been lost.
                    last = await self.bus.last(streams.OBJECTS, subject) if attempts else None
                    if last and last.headers.get(TRACE) == headers[TRACE]:
                        return last.sequence
                    # Another process publishes this kind, or the stream has lost messages.
                    self.shared.doubt()
                    raise Superseded(f"{subject} was changed by another process") from error
                assert sequence is not None  # no message id, so never a duplicate
                return sequence
            except Full:
                self.shared.capacity.lacking()
            except TransientError as error:
                logger.debug("%s: again: %s", subject, error)
                self.shared.doubt()
            attempts += 1
            pause = min(_LONGEST_PAUSE, 0.05 * 2 ** min(attempts, 9))
            await asyncio.sleep(pause * random.uniform(0.5, 1))

    async def _flush(self) -> None:
        """Wait until all changes are published. Raises the first error of these."""
        if self._tail:
            await asyncio.wait(list(self._tail.values()))
        if self._failed.done():
            self._failed.result()

    def _begin_to_forget(self) -> None:
        """Purge tombstones, in a task: there may be many of them."""
        if self._forgetting and not self._forgetting.done():
            return
        old = self._known.to_forget(self._now(), early=self._account.has_many_tombstones)

        async def forget() -> None:
            for subject in old:
                await self.permit.wait()
                await self._begin(subject, lambda before, subject=subject: self._purge(before, subject))  # type: ignore[misc]

        if old:
            self._forgetting = asyncio.create_task(forget(), name=f"{self.cluster}: forget")

    def _now(self) -> float:
        # Deletions of former processes bear the server's time.
        return self.bus.clock.rough()

    async def _purge(self, before: Before, subject: str) -> None:
        if before:
            await before
        known = self._known.get(subject)
        if known is None or not known.gone:
            return  # the object was recreated
        try:
            await self.bus.purge(streams.OBJECTS, subject, known.sequence + 1)
        except WindowboxError as error:
            logger.info("%s: not purged yet: %s", subject, error)
        else:
            self._known.forget(subject)
            self._account.drop(known)


def redacted(raw: Mapping[str, Any], *, secret: bool) -> dict[str, Any]:
    """The object without fields that windowbox never reads, and without the data of a Secret."""
    metadata = {k: v for k, v in raw.get("metadata", {}).items() if k != "managedFields"}
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {k: v for k, v in annotations.items() if k not in _UNUSED}
    if secret:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    return {**raw, "metadata": metadata}
