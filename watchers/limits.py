"""Limits that the mirrors of a process share: concurrent readings and listings, and the size of OBJECTS.

OBJECTS has a quota for each cluster; former versions of objects are dropped when it is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import NamedTuple

from bus import streams, subjects
from bus.messages import BODY, FORMER, OPERATION, UID, VERSION
from bus.transport import consumers
from bus.transport.connection import Bus
from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.refs import RUNTIME
from windowbox.settings.bussettings import Retention
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_READINGS = 4
_READ_TOGETHER = 64
"""Clusters that one consumer reads: each consumer is created and deleted by a vote of three NATS servers."""
_UNFINISHED = 1024
_LISTINGS = 64
_LISTINGS_OF_FAILED = 16
"""Clusters whose last listing failed share fewer slots: a hundred of them must not delay the others."""


_INTERVAL = 15.0
_TIGHT, _RELAXED = 0.9, 0.7
"""Fill levels: at the first, older versions are dropped; below the second, they are kept again."""
_OVERHEAD = 512
"""Bytes of a message besides the body: its subject, its headers, and what the server adds."""
_KEEPING, _MOST = 2, 3
"""Shares up to which existing content may grow, and beyond which new objects are not watched."""
TOMBSTONE_SECONDS = 3600.0
"""Seconds for which the bus keeps the deletion of an object."""
_SOONEST = 10.0
"""Seconds for which it does in any case: until all readers have received it."""
_MOST_TOMBSTONES = 10_000
"""Deleted objects of a kind in one cluster that are kept for longer."""
_TOMBSTONES = 0.5
"""The part of a cluster's share, beside its existing objects, that deleted objects may take for longer."""


class Known(NamedTuple):
    """The versions of an object that the bus holds."""

    uid: str
    version: str
    sequence: int
    gone: bool
    at: float
    size: int
    """Bytes of the body; of a deleted object, those of its last body, which is kept as a former version."""
    omitted: bool = False
    """Whether it is there without its content."""


KnownObjects = dict[str, Known]
"""By subject."""
Wanted = dict[str, dict[str, asyncio.Future[KnownObjects]]]
"""By cluster and kind."""


class Turn:
    """A slot of a semaphore that may be released early."""

    def __init__(self, lane: asyncio.Semaphore) -> None:
        self._lane: asyncio.Semaphore | None = lane

    def give_back(self) -> None:
        if self._lane:
            self._lane.release()
        self._lane = None


class Shared:
    """Bounds what mirrors do at once when all of them begin: thousands of consumers and listings."""

    def __init__(
        self,
        bus: Bus,
        doubt: Callable[[], None] = lambda: None,
        retention: Retention = streams.DEFAULT,
        share: float = 1.0,
    ) -> None:
        """`doubt` is called when the bus failed in a way that a loss of OBJECTS may have caused.

        `share` is the part of OBJECTS that one cluster may take.
        """
        self.doubt = doubt
        self.capacity = CapacityCheck(bus, retention)
        self.budget = Budget(retention, share)
        self._bus = bus
        self._reading = asyncio.Semaphore(_READINGS)
        self._wanted: Wanted = {}
        self._readings: set[asyncio.Task[None]] = set()
        self.publishing = asyncio.Semaphore(_UNFINISHED)
        """A slot for each unconfirmed message: their bodies are in memory."""
        self._turns = asyncio.Semaphore(_LISTINGS)
        self._turns_of_failed = asyncio.Semaphore(_LISTINGS_OF_FAILED)
        self._failed: set[str] = set()

    async def aclose(self) -> None:
        """Cancel readings in progress."""
        for task in self._readings:
            task.cancel()
        if self._readings:
            await asyncio.wait(self._readings)

    def forget(self, cluster: str) -> None:
        """Forget a cluster that is not watched any more."""
        self._failed.discard(cluster)

    async def known(self, cluster: str, kind: str) -> KnownObjects:
        """The objects of a kind on the bus. One consumer reads all clusters that are wanted by then."""
        if not self._wanted:
            self._begin_to_read()
        of_cluster = self._wanted.setdefault(cluster, {})
        answer = of_cluster.setdefault(kind, asyncio.get_running_loop().create_future())
        # Other callers may wait for the same future.
        return dict(await asyncio.shield(answer))

    def _begin_to_read(self) -> None:
        task = asyncio.create_task(self._read(), name="read what the bus knows")
        self._readings.add(task)
        task.add_done_callback(self._readings.discard)

    async def _read(self) -> None:
        async with self._reading:
            clusters = list(self._wanted)[:_READ_TOGETHER]
            wanted = {cluster: self._wanted.pop(cluster) for cluster in clusters}
            if self._wanted:
                self._begin_to_read()
            answers = {(cluster, kind): one for cluster in wanted for kind, one in wanted[cluster].items()}
            try:
                found = await self._found(wanted)
            except Exception as error:  # of the bus, or a bug: raised at the callers
                for answer in answers.values():
                    answer.set_exception(error)
                    answer.exception()  # a caller that was cancelled does not retrieve it
            else:
                for pair, answer in answers.items():
                    answer.set_result(found[pair])

    async def _found(self, wanted: Mapping[str, Collection[str]]) -> dict[tuple[str, str], KnownObjects]:
        """What the bus holds of these kinds, by cluster and kind."""
        found: dict[tuple[str, str], KnownObjects] = {
            (cluster, kind): {} for cluster, kinds in wanted.items() for kind in kinds
        }
        # The newest message of each filter is asked for, so that a cluster has one filter for all its kinds.
        filters = [
            subjects.seen_cluster(cluster) if len(kinds) > 1 else subjects.seen_kind(cluster, *kinds)
            for cluster, kinds in wanted.items()
        ]
        async for stored in consumers.snapshot(self._bus, streams.OBJECTS, filters, headers_only=True):
            of_pair = found.get(subjects.seen_pair(stored.subject))
            if of_pair is None or subjects.listed_cluster(stored.subject) is not None:
                continue
            headers = stored.headers
            gone = headers[OPERATION] == "DELETED"
            of_pair[stored.subject] = Known(
                headers[UID],
                headers[VERSION],
                stored.sequence,
                gone,
                int(stored.time) / 1e9,
                int(headers.get(FORMER if gone else "Nats-Msg-Size", 0)),
                headers.get(BODY) == "omitted",
            )
        return found

    @contextlib.asynccontextmanager
    async def listing(self, cluster: str) -> AsyncIterator[Turn]:
        """A slot to list a kind of the cluster."""
        lane = self._turns
        await lane.acquire()
        if cluster in self._failed:  # perhaps since the wait began
            lane.release()
            lane = self._turns_of_failed
            await lane.acquire()
        turn = Turn(lane)
        try:
            yield turn
        except Unreachable:
            self._failed.add(cluster)
            raise
        else:
            self._failed.discard(cluster)
        finally:
            turn.give_back()


class Budget:
    """The bytes of each cluster in OBJECTS: those of each object's last version, times the versions kept.

    The runtime cluster is the operator's own: it has no limit.
    """

    def __init__(self, retention: Retention, share: float) -> None:
        self._limit = int(retention.size * share / retention.versions)
        self._used: defaultdict[str, int] = defaultdict(int)
        self._deleted: defaultdict[str, int] = defaultdict(int)
        self._over: set[str] = set()

    def change(self, cluster: str, bytes: int, *, deleted: bool = False) -> None:
        """Count so many bytes more, of existing objects or of deleted ones."""
        used = self._deleted if deleted else self._used
        used[cluster] += bytes
        if not used[cluster]:
            del used[cluster]
            if not deleted:
                self._note(cluster, within=True)

    def has_room(self, cluster: str, more: int, *, kept: bool) -> bool:
        """Whether `more` bytes are within the share; `kept` is for objects whose content is there already."""
        if cluster == RUNTIME:
            return True
        within = self._used[cluster] + more <= self._limit
        if not within and cluster not in self._over:
            logger.warning(
                "%s has used up its share of OBJECTS: new objects are published without content", cluster
            )
        self._note(cluster, within=within)
        return within or (kept and self._used[cluster] + more <= _KEEPING * self._limit)

    def _note(self, cluster: str, *, within: bool) -> None:
        (self._over.discard if within else self._over.add)(cluster)
        metrics.clusters_over_share.set(len(self._over))

    def is_exhausted(self, cluster: str) -> bool:
        """Whether not even new objects without content are published."""
        return cluster != RUNTIME and self._used.get(cluster, 0) > _MOST * self._limit

    def has_many_tombstones(self, cluster: str) -> bool:
        """Whether deleted objects take so much that they are forgotten early, even in the runtime cluster."""
        return self._deleted.get(cluster, 0) > _TOMBSTONES * self._limit


class Account:
    """The part of their cluster's share that the objects of one mirror take."""

    def __init__(self, budget: Budget, cluster: str) -> None:
        self._budget = budget
        self._cluster = cluster
        self._total = {False: 0, True: 0}
        """Bytes of existing objects, and of deleted ones."""

    @property
    def exhausted(self) -> bool:
        return self._budget.is_exhausted(self._cluster)

    def has_room(self, size: int, former: int = 0) -> bool:
        """Whether an object's content of `former` bytes may be replaced by one of `size` bytes.

        If not, the object is announced without content, and readers ask the API.
        """
        more = size - former
        # A Service that grows by a few bytes must not lose its load balancer.
        return more <= 0 or self._budget.has_room(self._cluster, more, kept=former > 0)

    @property
    def has_many_tombstones(self) -> bool:
        return self._budget.has_many_tombstones(self._cluster)

    def count(self, known: Known) -> None:
        """Count a version of an object, or its deletion."""
        self._change(known.size + _OVERHEAD, known.gone)

    def drop(self, known: Known) -> None:
        """Uncount a version that another one has replaced, or a deletion that is forgotten."""
        self._change(-known.size - _OVERHEAD, known.gone)

    def close(self) -> None:
        for deleted, total in self._total.items():
            self._change(-total, deleted)

    def _change(self, bytes: int, deleted: bool) -> None:
        self._total[deleted] += bytes
        self._budget.change(self._cluster, bytes, deleted=deleted)


class Content:
    """What the bus holds of the objects of one mirror: their last versions, and deletions."""

    def __init__(self) -> None:
        self._known: KnownObjects = {}
        self._deleted: dict[str, float] = {}
        """When objects were deleted, by subject; the oldest first."""

    @property
    def existing(self) -> int:
        """The number of objects that are not deleted."""
        return len(self._known) - len(self._deleted)

    def get(self, subject: str) -> Known | None:
        return self._known.get(subject)

    def items(self) -> list[tuple[str, Known]]:
        return list(self._known.items())

    def put(self, subject: str, known: Known) -> None:
        self._deleted.pop(subject, None)
        self._known[subject] = known
        if known.gone:
            self._deleted[subject] = known.at

    def forget(self, subject: str) -> None:
        del self._known[subject]
        self._deleted.pop(subject, None)

    def to_forget(self, now: float, *, early: bool) -> list[str]:
        """Objects deleted long ago. `early`, or where there are too many: all but the youngest of them."""
        count, spared = len(self._deleted), 0 if early else _MOST_TOMBSTONES * 9 // 10
        excess = count - spared if early or count > _MOST_TOMBSTONES else 0
        found = list[str]()
        for subject, at in self._deleted.items():
            age = now - at
            if age <= TOMBSTONE_SECONDS and (age <= _SOONEST or len(found) >= excess):
                break
            found.append(subject)
        return found


class CapacityCheck:
    """Keeps OBJECTS from staying full: it drops older versions, and keeps them again when there is room."""

    def __init__(self, bus: Bus, retention: Retention) -> None:
        self._bus = bus
        self._retention = retention
        self._full = asyncio.Event()

    def lacking(self) -> None:
        """OBJECTS has refused a message because it is full."""
        self._full.set()

    async def run(self) -> None:
        """Check periodically, and as soon as OBJECTS is full; never returns."""
        while True:
            full = self._full.is_set()
            self._full.clear()
            try:
                info = await self._bus.api(f"STREAM.INFO.{streams.OBJECTS}", repeat=True)
                config, used = info["config"], int(info["state"]["bytes"])
                limit = int(config["max_bytes"])
                metrics.objects_bytes.set(used)
                metrics.objects_limit.set(limit)
                part, percent = 1.0 if full else used / limit, 100 * used / limit
                kept = versions = int(config["max_msgs_per_subject"])
                if part >= _TIGHT and kept > 1:
                    logger.warning("OBJECTS is full to %.0f %%: older versions are purged", percent)
                    versions = 1
                elif part >= _TIGHT:
                    logger.error("OBJECTS is full to %.0f %%: raise objects.size", percent)
                elif part < _RELAXED and kept == 1 < self._retention.versions:
                    versions = self._retention.versions
                    logger.info("OBJECTS has room again: %d versions are kept", versions)
                if versions != kept:
                    changed = {**config, "max_msgs_per_subject": versions}
                    await self._bus.api(f"STREAM.UPDATE.{streams.OBJECTS}", changed)
            except WindowboxError as error:
                logger.info("quota of OBJECTS: %s", error)
            await asyncio.sleep(1)  # a full stream refuses many messages at once
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL):
                    await self._full.wait()
