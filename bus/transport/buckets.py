"""Key-value buckets: written by compare-and-set, followed by each process that reads them."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import NamedTuple

from bus import subjects
from bus.transport import consumers
from bus.transport.connection import TIMEOUT, ApiError, Bus, Stored
from windowbox.errors import Unreachable, WindowboxError

logger = logging.getLogger(__name__)

_AGAIN = 0.5
_DELETED = {"KV-Operation": "DEL", "Nats-TTL": "3600s"}
"""The headers of a deletion. It expires: keys that come and go must not fill the bucket."""
_KEPT = 4000.0
"""Seconds after which a deletion has expired for certain."""


class Entry(NamedTuple):
    """The value of a key, and the sequence of its last message."""

    value: bytes | None
    """None if the key does not exist."""
    sequence: int
    """The sequence that the next write must expect; not always 0 for a key that does not exist."""


class State(NamedTuple):
    """The identity of a stream, and its first and last sequence."""

    created: str
    first: int
    last: int


class Bucket:
    """A bucket, with a copy of its entries while `run` is running. `subjects` spells its keys."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self._name = name
        self._stream = f"KV_{name}"
        self._reading = _Reading(State("", 0, 0))
        self._acknowledged = 0
        self._limit: asyncio.Timeout | None = None
        self._awaiting: dict[asyncio.Future[None], int] = {}
        self._changes: list[Callable[[str, bytes | None], None]] = []
        self._regresses: list[Callable[[], None]] = []
        self._completions: list[Callable[[], None]] = []
        self.complete = asyncio.Event()
        """Set while this process knows all entries; not set after a gap."""
        self.readings = 0
        """How often it was read from the beginning: each time, any entry may be different."""

    @property
    def entries(self) -> dict[str, Entry]:
        """The entries, as far as this process knows them."""
        return self._reading.entries

    def on_change(self, act: Callable[[str, bytes | None], None]) -> Callable[[], None]:
        """Call `act` with each changed key and value, None if it is deleted. Returns how to unsubscribe."""
        self._changes.append(act)
        return lambda: self._changes.remove(act)

    def on_regress(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` when the bucket has lost entries, before its changes. Returns how to unsubscribe."""
        self._regresses.append(act)
        return lambda: self._regresses.remove(act)

    def on_complete(self, act: Callable[[], None]) -> None:
        """Call `act` whenever all entries have been read, even if there are none."""
        self._completions.append(act)

    async def get(self, key: str) -> Entry:
        """The entry of `key`, read from the server."""
        last = await self._bus.last(self._stream, subjects.entry(self._name, key))
        return Entry(None, 0) if last is None else _entry(last)

    async def put(self, key: str, value: bytes, expected: int | None) -> int:
        """Write; WrongSequence if `expected` is given and is not the last sequence of the key."""
        return await self._write(key, value, {}, expected)

    async def delete(self, key: str, expected: int | None) -> int:
        return await self._write(key, b"", _DELETED, expected)

    async def catch_up(self) -> None:
        """Wait until this process knows all entries of the time of the call."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while not await self._caught_up():
                    await self.complete.wait()
        except TimeoutError as error:
            self.refresh()
            raise Unreachable(f"bucket {self._name}: its changes do not arrive") from error

    def refresh(self) -> None:
        """Read from the beginning again: entries are missing here."""
        self.complete.clear()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(0)

    async def run(self) -> None:
        """Follow changes, and read from the beginning after each gap; never returns."""
        with self._bus.on_disconnect(self.complete.clear):
            while True:
                try:
                    async with asyncio.timeout(None) as self._limit:
                        await self._follow()
                except TimeoutError:
                    continue
                except WindowboxError as error:
                    logger.debug("bucket %s: %s", self._name, error)
                    self.complete.clear()
                finally:
                    self._limit = None
                await asyncio.sleep(_AGAIN)

    async def _follow(self) -> None:
        floor = self._acknowledged
        fresh = _Reading(await self._state())
        regressed = fresh.sequence < floor
        filters = [subjects.entry(self._name, ">")]
        async for stored in consumers.follow(self._bus, self._stream, filters):
            if stored is not None:
                key = subjects.without(f"$KV.{self._name}", stored.subject)
                fresh.take(key, stored)
                if fresh is self._reading:
                    self._tell(key)
                    self._settle()
                continue
            before, self._reading = self._reading, fresh
            self.readings += 1
            if regressed or not fresh.continues(before):
                logger.warning("bucket %s has lost its content", self._name)
                self._acknowledged = 0
                for act in self._regresses:
                    act()
            for key in before.entries.keys() | fresh.entries.keys():
                if _value(before, key) != _value(fresh, key):
                    self._tell(key)
            self.complete.set()
            for act in self._completions:
                act()
            self._settle(fresh=True)

    def _tell(self, key: str) -> None:
        for act in self._changes:
            act(key, _value(self._reading, key))

    async def _caught_up(self) -> bool:
        await self.complete.wait()
        reading, floor = self._reading, max(self._reading.sequence, self._acknowledged)
        state = await self._state()
        if state.created != reading.created or state.last < floor:
            self.refresh()
        elif reading.sequence < state.last and state.first <= state.last:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaiting[reached] = state.last
            try:
                await reached
            finally:
                del self._awaiting[reached]
        # A purge sends no message to followers.
        if reading is self._reading and reading.oldest() < state.first:
            self.refresh()
        return reading is self._reading and self.complete.is_set()

    def _settle(self, fresh: bool = False) -> None:
        for reached, sequence in self._awaiting.items():
            if (sequence <= self._reading.sequence or fresh) and not reached.done():
                reached.set_result(None)

    async def _state(self) -> State:
        try:
            info = await self._bus.api(f"STREAM.INFO.{self._stream}")
        except ApiError as error:
            # A watcher recreates the stream.
            raise Unreachable(f"bucket {self._name}: {error}") from error
        return State(info["created"], int(info["state"]["first_seq"]), int(info["state"]["last_seq"]))

    async def _write(self, key: str, value: bytes, headers: dict[str, str], expected: int | None) -> int:
        subject = subjects.entry(self._name, key)
        sequence = await self._bus.publish(subject, value, headers, expect_last=expected)
        assert sequence is not None  # no message id, so never a duplicate
        self._acknowledged = max(self._acknowledged, sequence)
        return sequence


class _Reading:
    """The entries that one reading from the beginning has brought so far."""

    def __init__(self, state: State) -> None:
        self.created = state.created
        self.sequence = state.last
        """Once the reading is complete, all messages up to here are known."""
        self.entries: dict[str, Entry] = {}
        """In order of their sequences."""
        self._seen: dict[str, tuple[int, str]] = {}
        self._deleted: dict[str, float] = {}
        """When this process heard of each deletion, the earliest first."""

    def take(self, key: str, stored: Stored) -> None:
        self.sequence = max(self.sequence, stored.sequence)
        self._seen[key] = (stored.sequence, stored.time)
        entry = _entry(stored)
        self.entries.pop(key, None)
        self._deleted.pop(key, None)
        if entry.value is not None:
            self.entries[key] = entry
        else:
            self._deleted[key] = time.monotonic()
        self._forget_expired()

    def _forget_expired(self) -> None:
        while self._deleted:
            key, heard = next(iter(self._deleted.items()))
            if heard > time.monotonic() - _KEPT:
                return
            del self._deleted[key], self._seen[key]

    def oldest(self) -> float:
        """The sequence of the oldest entry; infinite if there is none."""
        return next((entry.sequence for entry in self.entries.values()), math.inf)

    def continues(self, before: _Reading) -> bool:
        """Whether this reading contains all that `before` contained.

        A store that was rolled back may since have got further than before. But then it holds other messages
        at sequences that we know.
        """
        if not before.created:
            return True
        return (
            self.created == before.created
            and self.sequence >= before.sequence
            and before.entries.keys() <= self._seen.keys()
            and all(
                seen[0] > before.sequence or before._seen.get(key) == seen for key, seen in self._seen.items()
            )
        )


def gone(stored: Stored) -> bool:
    """Whether this message is the end of its key: a deletion, or the marker of an expired entry."""
    return "KV-Operation" in stored.headers or "Nats-Marker-Reason" in stored.headers


def _entry(stored: Stored) -> Entry:
    return Entry(None if gone(stored) else stored.data, stored.sequence)


def _value(reading: _Reading, key: str) -> bytes | None:
    return reading.entries[key].value if key in reading.entries else None
