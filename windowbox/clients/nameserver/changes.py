"""Changes of record sets, and the queue in which the newest change of each waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from windowbox.clients.nameserver import messages
from windowbox.clients.nameserver.classify import Failure
from windowbox.models.recordsets import RecordKey, RecordSet

MOST_WAITING = 50_000
"""RRsets in one zone's queue at most; further callers wait."""

_NAME_SIZE = 256 + 10  # the longest name, and the fixed part of a record
_MARK_SIZE = 600  # a mark and the guards about it, whose names are as long as the record's


@dataclass(frozen=True, slots=True)
class Replace:
    """Make the RRset exactly what is wanted."""

    wanted: RecordSet
    owner: str | None = None
    resource: str = ""
    """The object of this record, for the owner's mark."""

    @property
    def key(self) -> RecordKey:
        return self.wanted.key

    @property
    def size(self) -> int:
        """Octets in an update, at most."""
        return messages.octets(self.wanted) + (_MARK_SIZE + 2 * len(self.resource) if self.owner else 0)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the RRset."""

    key: RecordKey
    owner: str | None = None

    @property
    def size(self) -> int:
        """Octets in an update, at most."""
        return _NAME_SIZE + (_MARK_SIZE if self.owner else 0)


Change = Replace | Delete


class Item:
    """A change, and its waiters."""

    __slots__ = ("change", "losses", "settled", "waiters")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.waiters: list[asyncio.Future[None]] = []
        self.losses = 0
        """Connections that were lost while it was in flight."""
        self.settled = False

    @property
    def key(self) -> RecordKey:
        return self.change.key

    @property
    def abandoned(self) -> bool:
        """Whether all waiters were cancelled: the change must not be sent."""
        return all(waiter.cancelled() for waiter in self.waiters)

    def succeed(self) -> None:
        self.settled = True
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, failure: Failure) -> None:
        self.settled = True
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(failure.error())


class ChangeQueue:
    """Holds at most one change per RRset. Names in flight are skipped until they are released."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, Item]] = {}
        self._busy: set[str] = set()
        self._outside: deque[asyncio.Future[None]] = deque()
        """Callers that wait for room."""
        self.size = 0

    def add(self, change: Change, waiter: asyncio.Future[None]) -> None:
        """The newest change wins; waiters of an older one share its outcome."""
        types = self._names.setdefault(change.key.name, {})
        item = types.get(change.key.type)
        if item is None:
            item = types[change.key.type] = Item(change)
            self.size += 1
        item.change = change
        item.waiters.append(waiter)

    def take(self, most: int, octets: int) -> list[Item]:
        """The next batch, oldest names first: all of a name together, deletions before additions."""
        batch: list[Item] = []
        taken: list[str] = []
        for name, types in self._names.items():
            if name in self._busy:
                continue
            octets -= sum(item.change.size for item in types.values())
            if batch and (octets < 0 or len(batch) + len(types) > most):
                break
            taken.append(name)
            batch += sorted(types.values(), key=lambda item: isinstance(item.change, Replace))
        for name in taken:
            self.size -= len(self._names.pop(name))
        self._busy.update(item.key.name for item in batch)
        self._admit(len(batch))
        return batch

    def release(self, batch: Iterable[Item]) -> None:
        self._busy.difference_update(item.key.name for item in batch)

    def requeue(self, items: Iterable[Item]) -> None:
        """Requeue unsettled changes, first in line, unless there is a newer one."""
        older: dict[str, dict[str, Item]] = {}
        for item in items:
            newer = self._names.get(item.key.name, {}).get(item.key.type)
            if newer is not None:
                newer.waiters += item.waiters
            else:
                older.setdefault(item.key.name, {})[item.key.type] = item
                self.size += 1
        for name, types in self._names.items():
            older.setdefault(name, {}).update(types)
        self._names = older

    def fail_all(self, failure: Failure) -> None:
        names, self._names = self._names, {}
        self.size = 0
        for types in names.values():
            for item in types.values():
                item.fail(failure)
        self._admit(len(self._outside))

    async def room(self) -> None:
        """Wait until the queue has room for another change."""
        while self.size >= MOST_WAITING:
            turn = asyncio.get_running_loop().create_future()
            self._outside.append(turn)
            await turn

    def _admit(self, count: int) -> None:
        while count > 0 and self._outside:
            turn = self._outside.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1
