"""Views: copies of some kinds in memory, for readers of many objects. They may lag for a moment."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Hashable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

from bus import feeds, streams, subjects
from bus.leases import guard
from bus.messages import OPERATION, Announcement
from bus.transport.connection import Bus
from windowbox.errors import NotListed, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 5.0


class View(Generic[T]):
    """The results of `extract` for each object of one kind in all clusters, except None."""

    def __init__(
        self,
        bus: Bus,
        kind: str,
        extract: Callable[[ObjectRef, Object], T | None],
        index: Callable[[T], Hashable] = lambda _: None,
        changed: Callable[[], None] = lambda: None,
        *,
        indexes: Callable[[T], Collection[Hashable]] | None = None,
        differs: Callable[[ObjectRef, T | None, T | None], None] = lambda ref, before, after: None,
    ) -> None:
        """`indexes`, in place of `index`, is for entries with several indexes.

        `differs` is called with each changed entry, before and after. Where all entries of a cluster may have
        changed, its `reading` differs instead.
        """
        self._bus = bus
        self._kind = kind
        self._extract = extract
        self._indexes: Callable[[T], Collection[Hashable]] = indexes or (lambda entry: (index(entry),))
        self._changed = changed
        self._differs = differs
        self._replica = Replica(self._indexes)
        self._fresh, self._fresh_listed = self._replica, set[str]()
        """What the current reading has found so far."""
        self._last = 0
        self._readings = itertools.count(1)
        self._reading = 0
        self._readings_of: dict[str, int] = {}
        self.complete = asyncio.Event()
        """Set once all objects of the time of the start have been read."""
        self.listed: set[str] = set()
        """The clusters that are listed completely. The bus may not know all objects of others."""
        self._read = 0
        self._progress = asyncio.Event()
        self._outdated = asyncio.Event()

    def get(self, ref: ObjectRef) -> T | None:
        return self._replica.entries.get(subjects.seen(ref))

    def reading(self, cluster: str) -> tuple[int, int]:
        """Differs from an earlier one if any entry of the cluster, or `listed`, may have changed at once."""
        return self._reading, self._readings_of.get(cluster, 0)

    def items(self) -> Iterator[tuple[ObjectRef, T]]:
        for subject, entry in list(self._replica.entries.items()):
            yield _ref(subject), entry

    def omitted(self) -> Iterator[ObjectRef]:
        """Existing objects that are too large for the bus, or for their cluster's share of it.

        Their entries are of an earlier version, or missing.
        """
        for subject in list(self._replica.omitted):
            yield _ref(subject)

    def refs(self, indexed: Hashable) -> list[ObjectRef]:
        """The objects with this index."""
        return [_ref(subject) for subject in self._replica.by_index.get(indexed, ())]

    def found(self, indexed: Hashable) -> Iterator[tuple[ObjectRef, T]]:
        """The objects with this index, and their entries."""
        for subject in self._replica.by_index.get(indexed, ()):
            yield _ref(subject), self._replica.entries[subject]

    def require_listed(self, cluster: str) -> None:
        """Raise NotListed while objects of the cluster may be missing, before irreversible decisions.

        `complete` means that the bus has been read, but a new bus is empty until the cluster is listed.
        """
        if cluster not in self.listed:
            raise NotListed(f"{self._kind} of {cluster} are not listed completely yet", retry_after=0.5)

    async def caught_up(self, cluster: str, namespace: str) -> None:
        """Wait until all messages about a namespace that the bus holds now have been read."""
        newest = await self._bus.newest_of(
            streams.OBJECTS, subjects.seen_namespace(cluster, self._kind, namespace)
        )
        try:
            async with asyncio.timeout(_PATIENCE):
                while self._read < newest:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError as error:
            raise NotListed(f"the view of {self._kind} is behind", retry_after=0.5) from error

    async def run(self) -> None:
        """Follow the stream, and read it again after each gap; never returns. Forgets an earlier call."""
        self._replica, self.listed = Replica(self._indexes), set()
        self._reading = next(self._readings)
        self.complete.clear()
        await guard.kept(f"view of {self._kind}", self._follow_again)

    def read_again(self) -> None:
        """Extract all entries anew, because `extract` depends on something that has changed."""
        self._outdated.set()

    async def _follow_again(self) -> None:
        while True:
            self._outdated.clear()
            outdated = asyncio.create_task(self._outdated.wait(), name=f"view of {self._kind}: outdated")
            following = asyncio.create_task(self._follow(), name=f"view of {self._kind}: follow")
            try:
                await asyncio.wait([outdated, following], return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
            except WindowboxError as error:
                logger.debug("view of %s: %s", self._kind, error)
                await asyncio.sleep(0.5)
            finally:
                outdated.cancel()
                following.cancel()
                await asyncio.wait([outdated, following])

    async def _follow(self) -> None:
        self._fresh, self._fresh_listed, self._last = Replica(self._indexes), set(), 0
        await feeds.follow(self._bus, self._kind, self._take)

    def _take(self, seen: Announcement | None) -> None:
        fresh, different = self._fresh, True
        if seen is None:
            self._replica, self.listed = fresh, self._fresh_listed
            self._reading = next(self._readings)
            self.complete.set()
        elif (cluster := subjects.listed_cluster(seen.stored.subject)) is not None:
            self._take_marker(cluster, seen)
        else:
            different = self._take_object(seen)
        # Most changes of an object do not change its entry.
        if self._replica is fresh and different:
            self._changed()
        self._last = seen.stored.sequence if seen else self._last
        if self._replica is fresh:
            self._read = self._last
            self._progress.set()

    def _take_marker(self, cluster: str, seen: Announcement) -> None:
        listed = self._fresh_listed
        if seen.stored.headers.get(OPERATION) == "DELETED":
            listed.discard(cluster)
            self._fresh.forget(subjects.seen_kind(cluster, self._kind).removesuffix(">"))
            self._readings_of.pop(cluster, None)
        elif cluster not in listed:  # else it is listed again, and changed entries were announced
            listed.add(cluster)
            self._readings_of[cluster] = next(self._readings)

    def _take_object(self, seen: Announcement) -> bool:
        """Whether the view differs now."""
        fresh, subject = self._fresh, seen.stored.subject
        omitted = seen.omitted and not seen.gone
        different = fresh.note_omitted(subject, omitted)
        # An object without content keeps its former entry: it exists.
        if omitted:
            return different
        ref = _ref(subject)
        before, after = fresh.entries.get(subject), None
        try:
            after = None if seen.gone else self._extract(ref, seen.object())
        except Exception:  # a bug of `extract`, triggered by fields that tenants write
            # One unexpected object must not stop the view of the others.
            logger.exception("%s is skipped in a view", ref)
        if not fresh.put(subject, after):
            return different
        self._differs(ref, before, after)
        return True


class Replica(Generic[T]):
    """The entries of a view, and their indexes."""

    def __init__(self, indexes: Callable[[T], Collection[Hashable]]) -> None:
        self._indexes = indexes
        self.entries: dict[str, T] = {}
        self.by_index: dict[Hashable, set[str]] = {}
        self.omitted: set[str] = set()

    def forget(self, prefix: str) -> None:
        """Remove all entries whose subjects start with `prefix`."""
        for subject in [one for one in self.entries if one.startswith(prefix)]:
            self.put(subject, None)
        self.omitted = {one for one in self.omitted if not one.startswith(prefix)}

    def note_omitted(self, subject: str, omitted: bool) -> bool:
        """Note whether the object is announced without content. False if that was known already."""
        if omitted == (subject in self.omitted):
            return False
        if omitted:
            self.omitted.add(subject)
        else:
            self.omitted.discard(subject)
        return True

    def put(self, subject: str, entry: T | None) -> bool:
        """Store the entry, None removes it. False if it is unchanged."""
        before = self.entries.pop(subject, None)
        for indexed in self._indexes(before) if before is not None else ():
            same = self.by_index[indexed]
            same.discard(subject)
            if not same:
                del self.by_index[indexed]
        if entry is not None:
            self.entries[subject] = entry
            for indexed in self._indexes(entry):
                self.by_index.setdefault(indexed, set()).add(subject)
        return before != entry


@lru_cache(maxsize=1 << 16)
def _ref(subject: str) -> ObjectRef:
    return subjects.ref(subjects.without("object", subject))
