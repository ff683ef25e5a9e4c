"""Attempts to remove orphans: when which of them is due. One cluster does not hold up the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from windowbox.models.refs import ObjectRef
from workers.core.owned.marks import Mark

logger = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds for the removals in one cluster in one check."""
_AT_ONCE = 100
"""Objects of one cluster that one check removes; the next goes on."""


class Owned(NamedTuple):
    """An object that bears a mark."""

    uid: str
    mark: Mark


Orphan = tuple[ObjectRef, Owned]


class Attempts:
    """When each orphan is due: after a grace, and after a failed attempt once a backoff is over."""

    def __init__(self, grace: float, backoff: float, patience: float = _PATIENCE) -> None:
        self._grace = grace
        self._backoff = backoff
        self._patience = patience
        self._due_at: dict[Orphan, float] = {}

    def forget(self) -> None:
        self._due_at = {}

    async def make(self, orphans: Iterable[Orphan], remove: Callable[[Orphan], Awaitable[None]]) -> None:
        """Remove those that are due, the clusters side by side. Those not given any more are forgotten."""
        grace_over = time.monotonic() + self._grace
        self._due_at = {one: self._due_at.get(one, grace_over) for one in orphans}
        due = self._due()
        await asyncio.gather(*(self._in_cluster(some, remove) for some in due.values()))

    def _due(self) -> dict[str, list[Orphan]]:
        """By cluster; those that have waited longest come first."""
        now = time.monotonic()
        by_cluster: dict[str, list[Orphan]] = defaultdict(list)
        for one in sorted(self._due_at, key=self._due_at.__getitem__):
            if self._due_at[one] <= now:
                by_cluster[one[0].cluster].append(one)
        return by_cluster

    async def _in_cluster(self, orphans: list[Orphan], remove: Callable[[Orphan], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self._patience):
                for one in orphans[:_AT_ONCE]:
                    self._due_at[one] = time.monotonic() + self._backoff
                    await remove(one)
        except TimeoutError:
            logger.info("orphans in %s: too slow; the rest follows later", orphans[0][0].cluster)
