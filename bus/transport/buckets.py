"""Key-value buckets: written by compare-and-set, followed by every process that reads them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import NamedTuple

from bus import subjects
from bus.transport import consumers
from bus.transport.connection import TIMEOUT, ApiError, Bus, Stored
from windowbox.errors import Unreachable, WindowboxError

logger = logging.getLogger(__name__)

_AGAIN = 0.5
_DELETED = {"KV-Operation": "DEL", "Nats-TTL": "3600s"}
"""Word of a deletion stays for a while only: keys that come and go must not fill the bucket."""


class Entry(NamedTuple):
    """What stands under a key."""

    value: bytes | None
    """None if nothing does."""
    sequence: int
    """What the next to write must expect; not always 0 where nothing stands."""


class State(NamedTuple):
    """How a stream presents itself: which it is, and how far it has come."""

    created: str
    first: int
    last: int


class Bucket:
    """A bucket, and what this process knows of it while `run` is running. Keys are spelled by `subjects`."""

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
        """Set while this process knows all entries; not set while it has lost the thread."""
        self.readings = 0
        """How often it was read from the beginning: after another reading, anything may be different."""

    @property
    def entries(self) -> dict[str, Entry]:
        """What stands there, as far as this process knows."""
        return self._reading.entries

    def on_change(self, act: Callable[[str, bytes | None], None]) -> Callable[[], None]:
        """Call `act` with each key whose value is another than before, None if it is gone. Returns what ends
        that."""
        self._changes.append(act)
        return lambda: self._changes.remove(act)

    def on_regress(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` when the bucket turns out to have forgotten things, before its changes are told. Returns
        what ends that."""
        self._regresses.append(act)
        return lambda: self._regresses.remove(act)

    def on_complete(self, act: Callable[[], None]) -> None:
        """Call `act` whenever all entries are known, even if there are none."""
        self._completions.append(act)

    async def get(self, key: str) -> Entry:
        """What stands under `key`, asked of the server."""
        last = await self._bus.last(self._stream, subjects.entry(self._name, key))
        return Entry(None, 0) if last is None else _entry(last)

    async def put(self, key: str, value: bytes, expected: int | None) -> int:
        """Write; WrongSequence if `expected` is given and is not the last sequence of the key."""
        return await self._write(key, value, {}, expected)

    async def delete(self, key: str, expected: int | None) -> int:
        return await self._write(key, b"", _DELETED, expected)

    async def catch_up(self) -> None:
        """Know all that stood in the bucket when this was called."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while not await self._caught_up():
                    await self.complete.wait()
        except TimeoutError as error:
            self.refresh()
            raise Unreachable(f"bucket {self._name}: its changes do not arrive") from error

    def refresh(self) -> None:
        """Read from the beginning again, since what we know is not all there is."""
        self.complete.clear()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(0)

    async def run(self) -> None:
        """Follow what changes, for ever; afresh after gaps."""
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
            if stored is None:
                self._turn_to(fresh, regressed)
                continue
            key = subjects.without(f"$KV.{self._name}", stored.subject)
            fresh.take(key, stored)
            if fresh is self._reading:
                self._tell(key)
                self._settle()

    def _turn_to(self, fresh: _Reading, regressed: bool) -> None:
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
        self._settle(anew=True)

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
            await self._reached(state.last)
        # Those who follow are not told of a purge.
        if reading is self._reading and reading.oldest() < state.first:
            self.refresh()
        return reading is self._reading and self.complete.is_set()

    async def _reached(self, sequence: int) -> None:
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting[reached] = sequence
        try:
            await reached
        finally:
            del self._awaiting[reached]

    def _settle(self, anew: bool = False) -> None:
        for reached, sequence in self._awaiting.items():
            if (sequence <= self._reading.sequence or anew) and not reached.done():
                reached.set_result(None)

    async def _state(self) -> State:
        try:
            info = await self._bus.api(f"STREAM.INFO.{self._stream}")
        except ApiError as error:
            # Somebody will make it again.
            raise Unreachable(f"bucket {self._name}: {error}") from error
        return State(info["created"], int(info["state"]["first_seq"]), int(info["state"]["last_seq"]))

    async def _write(self, key: str, value: bytes, headers: dict[str, str], expected: int | None) -> int:
        subject = subjects.entry(self._name, key)
        sequence = await self._bus.publish(subject, value, headers, expect_last=expected)
        assert sequence is not None  # no message id, so never a duplicate
        self._acknowledged = max(self._acknowledged, sequence)
        return sequence


class _Reading:
    """What one reading from the beginning has brought so far."""

    def __init__(self, state: State) -> None:
        self.created = state.created
        self.sequence = state.last
        """All up to here is known, once the reading is complete."""
        self.entries: dict[str, Entry] = {}
        """In order of their sequences."""
        self._seen: dict[str, tuple[int, str]] = {}

    def take(self, key: str, stored: Stored) -> None:
        self.sequence = max(self.sequence, stored.sequence)
        self._seen[key] = (stored.sequence, stored.time)
        entry = _entry(stored)
        self.entries.pop(key, None)
        if entry.value is not None:
            self.entries[key] = entry

    def oldest(self) -> float:
        """The sequence of the oldest entry; infinite if there is none."""
        return next((entry.sequence for entry in self.entries.values()), math.inf)

    def continues(self, before: _Reading) -> bool:
        """Whether this tells the same story as `before`, only further.

        A store that was put back to an older copy may since have got further than it was before. But then it
        holds, at sequences that we know, something that we have not seen there.
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
    """Whether this message says that its key holds nothing any more: it was deleted, or has aged away."""
    return "KV-Operation" in stored.headers or "Nats-Marker-Reason" in stored.headers


def _entry(stored: Stored) -> Entry:
    return Entry(None if gone(stored) else stored.data, stored.sequence)


def _value(reading: _Reading, key: str) -> bytes | None:
    return reading.entries[key].value if key in reading.entries else None
