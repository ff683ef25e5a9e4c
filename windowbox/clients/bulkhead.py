"""Bulkhead: how many runs of a pool may be at one provider cluster at once: slow ones hold up no others.

Whoever is refused does not wait in its slot: `Waiting` ends the run, and it is requeued.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field

from windowbox.errors import Waiting

_BUDGET = 120.0
"""Seconds for all that one run does at a provider cluster."""
_PATIENCE = 3.0
"""Seconds after which a run that exceeds its cluster's share is stopped, and its cluster counts as slow."""
_REMEMBERED = 60.0
"""Seconds for which a cluster that was slow counts as slow."""
_INTRODUCTION = 0.5
"""Seconds to wait for the first answer of a cluster that is new."""
_PER_WAITING = 0.2
_SOONEST, _LATEST = 2.0, 60.0
"""Seconds until somebody who was refused tries again, by how many others wait."""
_MOST_HOSTS = 1024


@dataclass
class _Host:
    """One provider cluster, by where it is, as the runs of one pool know it."""

    running: int = 0
    known: asyncio.Event = field(default_factory=asyncio.Event)
    """A run has ended there: it is known how fast it is."""
    slow_until: float = 0.0
    waiting: set[Hashable] = field(default_factory=set)

    @property
    def fast(self) -> bool:
        return self.known.is_set() and time.monotonic() >= self.slow_until


class Bulkhead:
    """Shares of each pool's slots.

    A cluster that is not known to be fast gets a quarter of them; all those together get half. A run beyond
    that has to be quick.
    """

    def __init__(self, slots: int) -> None:
        self._share = max(1, slots // 4)
        self._half = max(1, slots // 2)
        self._hosts: dict[tuple[str, str], _Host] = {}

    @contextlib.asynccontextmanager
    async def turn(self, pool: str, host: str, who: Hashable) -> AsyncIterator[None]:
        """A turn for `who` at a host. Waiting if it gets none now, TimeoutError if it takes too long."""
        self._forget()
        at = self._hosts.setdefault((pool, host), _Host())
        if not at.known.is_set() and at.running >= self._share:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(at.known.wait(), _INTRODUCTION)
        beyond = at.running >= self._share
        if not at.fast and (beyond or self._of_slow_ones(pool) >= self._half):
            at.waiting.add(who)
            raise Waiting(
                "waiting for a turn at the provider cluster: other objects are being worked on there, or at "
                "others that answer slowly",
                retry_after=_delay(len(at.waiting)),
            )
        at.waiting.discard(who)
        at.running += 1
        started = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE if beyond else _BUDGET):
                yield
        finally:
            at.running -= 1
            if time.monotonic() - started >= _PATIENCE:
                at.slow_until = time.monotonic() + _REMEMBERED
            at.known.set()
            if not at.running:
                at.waiting.clear()

    def _of_slow_ones(self, pool: str) -> int:
        return sum(at.running for (of, _), at in self._hosts.items() if of == pool and not at.fast)

    def _forget(self) -> None:
        """Forget clusters where nobody is, if there are too many."""
        if len(self._hosts) >= _MOST_HOSTS:
            self._hosts = {key: at for key, at in self._hosts.items() if at.running}


def _delay(waiting: int) -> float:
    return min(_LATEST, max(_SOONEST, waiting * _PER_WAITING)) * random.uniform(0.5, 1.5)
