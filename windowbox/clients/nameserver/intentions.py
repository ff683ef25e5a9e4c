"""What is to become of records, and the queue in which the newest intention about each of them waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from windowbox.clients.nameserver.classify import Failure
from windowbox.clients.nameserver.messages import Packed
from windowbox.models.recordsets import RecordKey

MOST_WAITING = 50_000
"""RRsets in one zone's queue; whoever brings more has to wait."""

_MARK_SIZE = 600  # a mark and the guards about it, whose names are as long as the record's


@dataclass(frozen=True, slots=True)
class Replace:
    """Make the RRset exactly this."""

    key: RecordKey
    record: Packed
    owner: str | None = None
    previous_owner: str | None = None
    """Who hands the record over to `owner`, if it is still theirs."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Make the RRset go away."""

    key: RecordKey
    record: Packed
    owner: str | None = None
    unless_changed: tuple[bytes, ...] = ()
    """Only while it has exactly these values; whatever else is there belongs to somebody else."""


Intention = Replace | Delete


class Item:
    """An intention, and everybody who waits for it."""

    __slots__ = ("intention", "losses", "settled", "waiters")

    def __init__(self, intention: Intention) -> None:
        self.intention = intention
        self.waiters: list[asyncio.Future[None]] = []
        self.losses = 0
        """Connections that ended while it was under way."""
        self.settled = False

    @property
    def key(self) -> RecordKey:
        return self.intention.key

    @property
    def size(self) -> int:
        guards = sum(12 + len(value) for value in getattr(self.intention, "unless_changed", ()))
        return self.intention.record.size + guards + (_MARK_SIZE if self.intention.owner else 0)

    @property
    def abandoned(self) -> bool:
        """Everybody who asked for it has gone away, so that it must not happen any more."""
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


class Backlog:
    """At most one intention per RRset waits. Names under way are left alone until they are released."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, Item]] = {}
        self._busy: set[str] = set()
        self._outside: deque[asyncio.Future[None]] = deque()
        self.size = 0

    def add(self, intention: Intention, waiter: asyncio.Future[None]) -> None:
        """The newest intention wins; who waited for an older one shares its outcome."""
        types = self._names.setdefault(intention.key.name, {})
        item = types.get(intention.key.type)
        if item is None:
            item = types[intention.key.type] = Item(intention)
            self.size += 1
        item.intention = intention
        item.waiters.append(waiter)

    def take(self, most: int, octets: int) -> list[Item]:
        """The next batch, oldest names first: all of a name together, deletions before additions."""
        batch: list[Item] = []
        taken: list[str] = []
        for name, types in self._names.items():
            if name in self._busy:
                continue
            octets -= sum(item.size for item in types.values())
            if batch and (octets < 0 or len(batch) + len(types) > most):
                break
            taken.append(name)
            batch += sorted(types.values(), key=_deletes_first)
        for name in taken:
            self.size -= len(self._names.pop(name))
        self._busy.update(item.key.name for item in batch)
        self._let_in(len(batch))
        return batch

    def release(self, batch: Iterable[Item]) -> None:
        self._busy.difference_update(item.key.name for item in batch)

    def put_back(self, items: Iterable[Item]) -> None:
        """Let what is not settled wait again, first in line, unless there is a newer intention."""
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
        self._let_in(len(self._outside))

    async def room(self) -> None:
        """Wait until the queue takes another intention."""
        while self.size >= MOST_WAITING:
            turn = asyncio.get_running_loop().create_future()
            self._outside.append(turn)
            await turn

    def _let_in(self, count: int) -> None:
        while count > 0 and self._outside:
            turn = self._outside.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1


def _deletes_first(item: Item) -> bool:
    return isinstance(item.intention, Replace)
