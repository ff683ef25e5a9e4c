"""Members: who holds the leases of one family, such as `edge.a` and `edge.b`, and who of them lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from bus import streams, subjects
from bus.leases import leases, liveness
from bus.transport import buckets, consumers
from bus.transport.connection import Bus, Stored
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

DOUBT = 5.0
"""Seconds after an interruption in which no member counts as dead: the others renew their leases as we do."""
_AGAIN = 0.5


def lease(family: str, member: str) -> str:
    """The lease of a member; that of a family with one nameless member is the family itself."""
    return f"{family}.{member}" if member else family


async def named(bus: Bus, family: str) -> AsyncIterator[str]:
    """All members with a lease, dead or alive."""
    prefix = subjects.entry(streams.LEASES, family)
    async for stored in consumers.snapshot(bus, f"KV_{streams.LEASES}", [prefix, f"{prefix}.>"]):
        if not buckets.gone(stored):
            yield stored.subject.removeprefix(prefix).removeprefix(".")


class Members:
    """Follows who lives. `run` must be running."""

    def __init__(self, bus: Bus, family: str) -> None:
        self._bus = bus
        self._family = family
        self._prefix = subjects.entry(streams.LEASES, family)
        self._lives: set[str] = set()
        self._holders: dict[str, str] = {}
        """By member, the life that its lease names; empty if the lease waits for its next process."""
        self._waiting: dict[str, float] = {}
        """By member whose lease waits, until when, by the server's clock."""
        self._newest = self._newest_at = 0.0
        """When the newest entry was stored, by the server's clock, and when we got it, by ours: each life is
        renewed every second."""
        self._ended: set[str] = set()
        """Members that have ended in an orderly way, which is never in doubt."""
        self._certain_at = 0.0
        self._changes: list[Callable[[], None]] = []
        self.alive: frozenset[str] = frozenset()
        self.complete = asyncio.Event()
        """Set once all leases have been read."""

    def on_change(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` whenever other members live than before. Returns how to unsubscribe."""
        self._changes.append(act)
        return lambda: self._changes.remove(act)

    def doubt(self) -> None:
        """Believe for a while in all that lived: we have just got our own lease, or the bus was away."""
        loop = asyncio.get_running_loop()
        self._certain_at = loop.time() + DOUBT
        loop.call_at(self._certain_at, self._judge)

    async def run(self) -> None:
        """Follow all leases of the family; never returns."""
        filters = [self._prefix, f"{self._prefix}.>", liveness.subject(">")]
        while True:
            fresh: tuple[set[str], dict[str, str]] | None = (set(), {})
            try:
                async for stored in consumers.follow(self._bus, f"KV_{streams.LEASES}", filters):
                    if stored is None:
                        if fresh is not None:
                            self._lives, self._holders = fresh
                            fresh = None
                            self.doubt()
                            self.complete.set()
                    elif fresh is not None:
                        self._take(stored, *fresh)
                        continue
                    else:
                        self._take(stored, self._lives, self._holders)
                    self._judge()
            except WindowboxError as error:
                logger.debug("members of %s: %s", self._family, error)
            await asyncio.sleep(_AGAIN)

    def _take(self, stored: Stored, lives: set[str], holders: dict[str, str]) -> None:
        loop, at = asyncio.get_running_loop(), int(stored.time) / 1e9
        if at > self._newest:
            self._newest, self._newest_at = at, loop.time()
        if liveness.is_life(stored.subject):
            life = stored.subject.removeprefix(liveness.subject(""))
            (lives.discard if buckets.gone(stored) else lives.add)(life)
            return
        member = stored.subject.removeprefix(self._prefix).removeprefix(".")
        if buckets.gone(stored):
            holders.pop(member, None)
            self._ended.add(member)
        else:
            holders[member] = stored.headers.get(leases.HOLDER, "")
            kept = float(stored.headers.get(leases.LEFT, 0.0))
            self._waiting[member] = at + kept
            if kept:
                loop.call_later(kept + _AGAIN, self._judge)
            self._ended.discard(member)

    def _judge(self) -> None:
        time = asyncio.get_running_loop().time()
        now = self._newest + time - self._newest_at
        alive = {
            member
            for member, life in self._holders.items()
            if (life in self._lives if life else now < self._waiting[member])
        }
        if time < self._certain_at:
            alive |= (self.alive | {name for name, life in self._holders.items() if life}) - self._ended
        if alive != self.alive:
            logger.info("members of %s: %s", self._family, ", ".join(sorted(map(repr, alive))))
            self.alive = frozenset(alive)
            for act in list(self._changes):
                act()
