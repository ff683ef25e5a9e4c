"""Views: copies in memory of some kinds, for readers of many objects. They may be a moment behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

from bus import streams, subjects
from bus.messages import OPERATION, Announcement
from bus.transport import consumers
from bus.transport.connection import Bus
from windowbox.errors import NotListed, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 5.0


class View(Generic[T]):
    """Of each object of one kind, in all clusters, what `extract` makes of it; nothing where that is None."""

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
        """`indexes` is for those who look entries up in several ways, in place of `index`.

        `differs` is called with each entry that is another than before, as it was and as it is. Where all may
        be others, `readings` counts up instead.
        """
        self._bus = bus
        self._kind = kind
        self._extract = extract
        self._indexes: Callable[[T], Collection[Hashable]] = indexes or (lambda entry: (index(entry),))
        self._changed = changed
        self._differs = differs
        self._replica: Replica[T] = Replica()
        self.readings = 0
        """How often any entry, or what is listed, may have become another."""
        self.complete = asyncio.Event()
        """Set once everything that was there at the start has been read."""
        self.listed: set[str] = set()
        """The clusters of which nothing is missing. Others the bus may have forgotten, or not know yet."""
        self._read = 0
        self._progress = asyncio.Event()

    def get(self, ref: ObjectRef) -> T | None:
        return self._replica.entries.get(subjects.seen(ref))

    def items(self) -> Iterator[tuple[ObjectRef, T]]:
        for subject, entry in list(self._replica.entries.items()):
            yield _ref(subject), entry

    def omitted(self) -> Iterator[ObjectRef]:
        """Objects that are there, but too large for the bus, or for their cluster's share of it.

        Of those only what was known before is known, which may be nothing.
        """
        for subject in list(self._replica.omitted):
            yield _ref(subject)

    def refs(self, indexed: Hashable) -> list[ObjectRef]:
        """Those of which `index` makes `indexed`, or `indexes` makes it among others."""
        return [_ref(subject) for subject in self._replica.by_index.get(indexed, ())]

    def found(self, indexed: Hashable) -> Iterator[tuple[ObjectRef, T]]:
        """The same, with what is known of them."""
        for subject in self._replica.by_index.get(indexed, ()):
            yield _ref(subject), self._replica.entries[subject]

    def require_listed(self, cluster: str) -> None:
        """For decisions that cannot be undone: refuse them while something of the cluster may be missing.

        `complete` says that the bus has been read, but a bus made anew knows nothing until the cluster has
        been listed.
        """
        if cluster not in self.listed:
            raise NotListed(f"{self._kind} of {cluster} are not listed completely yet", retry_after=0.5)

    async def caught_up(self, cluster: str, namespace: str) -> None:
        """Wait until all that the bus holds of a namespace by now has been read."""
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
        """Follow the stream for ever; after a gap, start afresh. What an earlier call read is forgotten."""
        self._replica, self.listed = Replica(), set()
        self.readings += 1
        self.complete.clear()
        while True:
            try:
                await self._follow()
            except WindowboxError as error:
                logger.debug("view of %s: %s", self._kind, error)
                await asyncio.sleep(0.5)

    async def _follow(self) -> None:
        fresh: Replica[T] = Replica()
        listed: set[str] = set()
        last = 0
        filters = [subjects.seen_kind("*", self._kind), subjects.listed("*", self._kind)]
        async for stored in consumers.follow(self._bus, streams.OBJECTS, filters):
            different = True
            if stored is None:
                self._replica, self.listed = fresh, listed
                self.readings += 1
                self.complete.set()
            elif (cluster := subjects.listed_cluster(stored.subject)) is not None:
                if stored.headers.get(OPERATION) == "DELETED":
                    listed.discard(cluster)
                    fresh.forget(subjects.seen_kind(cluster, self._kind).removesuffix(">"), self._indexes)
                else:
                    listed.add(cluster)
                self.readings += 1
            else:
                seen = Announcement(stored)
                ref = _ref(stored.subject)
                omitted = seen.omitted and not seen.gone
                different = fresh.note_omitted(stored.subject, omitted)
                # Of an object without its content the former counts: it is there, so it has not ended.
                if not omitted:
                    before, after = fresh.entries.get(stored.subject), self._entry(ref, seen)
                    if fresh.put(stored.subject, after, self._indexes):
                        different = True
                        self._differs(ref, before, after)
            # Most versions of an object differ in what nobody here looks at.
            if self._replica is fresh and different:
                self._changed()
            last = stored.sequence if stored else last
            if self._replica is fresh:
                self._read = last
                self._progress.set()

    def _entry(self, ref: ObjectRef, seen: Announcement) -> T | None:
        try:
            return None if seen.gone else self._extract(ref, seen.object())
        except Exception:
            # One object that nobody foresaw must not take the view of the others away.
            logger.exception("%s is skipped in a view", ref)
            return None


class Replica(Generic[T]):
    """What a view knows."""

    def __init__(self) -> None:
        self.entries: dict[str, T] = {}
        self.by_index: dict[Hashable, set[str]] = {}
        self.omitted: set[str] = set()

    def forget(self, prefix: str, indexes: Callable[[T], Collection[Hashable]]) -> None:
        """Leave out all whose subjects begin like this."""
        for subject in [one for one in self.entries if one.startswith(prefix)]:
            self.put(subject, None, indexes)
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

    def put(self, subject: str, entry: T | None, indexes: Callable[[T], Collection[Hashable]]) -> bool:
        """Take it in. False if the same was known already."""
        before = self.entries.pop(subject, None)
        for indexed in indexes(before) if before is not None else ():
            same = self.by_index[indexed]
            same.discard(subject)
            if not same:
                del self.by_index[indexed]
        if entry is not None:
            self.entries[subject] = entry
            for indexed in indexes(entry):
                self.by_index.setdefault(indexed, set()).add(subject)
        return before != entry


@lru_cache(maxsize=1 << 16)
def _ref(subject: str) -> ObjectRef:
    return subjects.ref(subjects.without("object", subject))
