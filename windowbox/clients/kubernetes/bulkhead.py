"""Bulkhead: how many runs of a pool may be at one cluster at once: slow clusters hold up no others.

A refused run does not wait in its slot: `Waiting` ends it, and its object is requeued.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field

from windowbox.errors import Waiting

BUDGET = 60.0
"""The longest time of one run at a cluster, in seconds: the heartbeat needs to outlast two of them."""
_PATIENCE = 3.0
"""Seconds after which a cluster counts as slow: a run that exceeds its share is stopped, and one within it
makes way for clusters that are new."""
_REMEMBERED = 60.0
"""A slow cluster counts as slow for at least so many seconds."""
_INTRODUCTION = 0.5
"""Seconds that runs at a new cluster wait for its first run to end."""
_PER_WAITING = 0.2
_SOONEST, _LATEST = 2.0, 60.0
"""Seconds until a refused run is retried, by the number of others that wait."""
_MOST_HOSTS = 1024


@dataclass(eq=False)
class _Turn:
    limit: asyncio.Timeout
    since: float
    stopped: bool = False


@dataclass
class _Host:
    """One cluster, as the runs of one pool know it."""

    turns: set[_Turn] = field(default_factory=set)
    new: bool = True
    """No run has ended there yet, so its speed is unknown."""
    fast: bool = False
    """The last run there was quick, and no run has been slow for a while."""
    slow_until: float = 0.0
    waiting: set[Hashable] = field(default_factory=set)

    def note(self, seconds: float, *, stopped: bool) -> None:
        """A run has ended there. One that was `stopped` was slow: timers may come a millisecond early."""
        now, slow = time.monotonic(), stopped or seconds >= _PATIENCE
        if slow:
            self.slow_until = now + _REMEMBERED
        self.new, self.fast = False, not slow and now >= self.slow_until


class Bulkhead:
    """Shares of each pool's slots.

    A cluster that is not known to be fast gets a quarter of them; all those together get half. A fast one may
    have more, for runs that are quick. For a cluster that is new, the longest run at a slow one is stopped.
    """

    def __init__(self, slots: int) -> None:
        self._share = max(1, slots // 4)
        self._half = max(1, slots // 2)
        self._hosts: dict[tuple[str, str], _Host] = {}
        """The most recently used last."""
        self._left = asyncio.Event()

    @contextlib.asynccontextmanager
    async def turn(self, pool: str, host: str, who: Hashable) -> AsyncIterator[None]:
        """A slot for `who` at a host. Waiting if there is none, TimeoutError if the run takes too long."""
        at = self._host(pool, host)
        if at.new and not self._has_room(pool, at):
            await self._make_room(pool, at)
        if not self._has_room(pool, at):
            at.waiting.add(who)
            pause = min(_LATEST, max(_SOONEST, len(at.waiting) * _PER_WAITING))
            raise Waiting(
                "waiting for a turn at the provider cluster: other objects are being worked on there, or at "
                "others that answer slowly",
                retry_after=pause * random.uniform(0.5, 1.5),
            )
        at.waiting.discard(who)
        limit = asyncio.timeout(_PATIENCE if len(at.turns) >= self._share else BUDGET)
        turn = _Turn(limit, time.monotonic())
        at.turns.add(turn)
        try:
            async with limit:
                yield
        finally:
            at.turns.discard(turn)
            at.note(time.monotonic() - turn.since, stopped=limit.expired())
            if not at.turns:
                at.waiting.clear()
            self._left.set()
            self._left = asyncio.Event()

    def _has_room(self, pool: str, at: _Host) -> bool:
        at_slow = sum(len(one.turns) for (of, _), one in self._hosts.items() if of == pool and not one.fast)
        return at.fast or (len(at.turns) < self._share and at_slow < self._half)

    async def _make_room(self, pool: str, at: _Host) -> None:
        """Wait briefly; if slow clusters use all the room, stop one of their runs."""
        if len(at.turns) < self._share:
            self._stop_longest(pool)
        # Counted from the first run there: many runs that each wait in their slot would hold up others.
        begun = min((turn.since for turn in at.turns), default=time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(begun + _INTRODUCTION - time.monotonic()):
                while not self._has_room(pool, at):
                    await self._left.wait()

    def _stop_longest(self, pool: str) -> None:
        """Stop the longest run at the cluster with the most runs, unless all runs are young."""
        begun = time.monotonic() - _PATIENCE
        hosts = [at for (of, _), at in self._hosts.items() if of == pool and not at.fast]
        for at in sorted(hosts, key=lambda one: -len(one.turns)):
            old = [turn for turn in at.turns if turn.since <= begun and not turn.stopped]
            if old:
                longest = min(old, key=lambda turn: turn.since)
                longest.stopped = True
                longest.limit.reschedule(asyncio.get_running_loop().time())
                return

    def _host(self, pool: str, host: str) -> _Host:
        key = pool, host
        at = self._hosts.pop(key, None)
        if at is None:
            at = _Host()
            idle = [key for key, one in self._hosts.items() if not one.turns]
            if len(self._hosts) >= _MOST_HOSTS and idle:
                # The least recently used one; a fast one only if there is no other.
                del self._hosts[next((one for one in idle if not self._hosts[one].fast), idle[0])]
        self._hosts[key] = at
        return at
