"""The quota of OBJECTS: how full it is, what is dropped when it is full, and the share of one cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict

from bus import streams
from bus.transport.connection import Bus
from windowbox.errors import WindowboxError
from windowbox.models.refs import RUNTIME
from windowbox.settings.bussettings import Retention
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_INTERVAL = 15.0
_TIGHT, _RELAXED = 0.9, 0.7
"""From the former on, only the last version of each object is kept; below the latter, all are again."""
_OVERHEAD = 512
"""Bytes of a message besides the body: its subject, its headers, and what the server adds."""
_KEEPING, _MOST = 2, 3
"""Shares up to which an object keeps the content that it has, and beyond which no new object is watched."""


class Budget:
    """How many bytes each cluster has in OBJECTS, counting the last version of each object as if it filled
    all versions that are kept. The runtime cluster is the operator's own: it has no limit.
    """

    def __init__(self, retention: Retention, share: float) -> None:
        self._limit = int(retention.size * share / retention.versions)
        self._used: defaultdict[str, int] = defaultdict(int)
        self._over: set[str] = set()

    def change(self, cluster: str, bytes: int) -> None:
        self._used[cluster] += bytes
        if not self._used[cluster]:
            del self._used[cluster]

    def has_room(self, cluster: str, more: int, *, kept: bool) -> bool:
        """Whether so many bytes more are within the share; `kept` is for content that is there already."""
        if cluster == RUNTIME:
            return True
        within = self._used[cluster] + more <= self._limit
        if not within and cluster not in self._over:
            logger.warning(
                "%s has used up its share of OBJECTS: new objects are published without content", cluster
            )
        (self._over.discard if within else self._over.add)(cluster)
        metrics.clusters_over_share.set(len(self._over))
        return within or (kept and self._used[cluster] + more <= _KEEPING * self._limit)

    def is_exhausted(self, cluster: str) -> bool:
        """Whether the cluster has so much that not even the names of new objects are taken in."""
        return cluster != RUNTIME and self._used.get(cluster, 0) > _MOST * self._limit


class Account:
    """What the objects of one mirror take of their cluster's share. Those that have ended take nothing."""

    def __init__(self, budget: Budget, cluster: str) -> None:
        self._budget = budget
        self._cluster = cluster
        self._total = 0

    @property
    def exhausted(self) -> bool:
        return self._budget.is_exhausted(self._cluster)

    def has_room(self, size: int, former: int = 0) -> bool:
        """Whether content of so many bytes may be announced of an object that has so many there.

        If not, it has to stay away: whoever needs it asks the API.
        """
        more = size - former
        # A Service that grows by a few bytes must not lose its load balancer.
        return more <= 0 or self._budget.has_room(self._cluster, more, kept=former > 0)

    def count(self, size: int) -> None:
        """Count an object with so many bytes of content."""
        self._change(size + _OVERHEAD)

    def drop(self, size: int) -> None:
        """The object has ended, or has other content now."""
        self._change(-size - _OVERHEAD)

    def close(self) -> None:
        self._change(-self._total)

    def _change(self, bytes: int) -> None:
        self._total += bytes
        self._budget.change(self._cluster, bytes)


class CapacityCheck:
    """Keeps OBJECTS from staying full: former versions make room, and come back when there is enough."""

    def __init__(self, bus: Bus, retention: Retention) -> None:
        self._bus = bus
        self._retention = retention
        self._full = asyncio.Event()

    def lacking(self) -> None:
        """OBJECTS has refused a message because it is full."""
        self._full.set()

    async def run(self) -> None:
        """Look at it now and then, and as soon as it is full, for ever."""
        while True:
            full = self._full.is_set()
            self._full.clear()
            try:
                await self._look(full=full)
            except WindowboxError as error:
                logger.info("quota of OBJECTS: %s", error)
            await asyncio.sleep(1)  # many are refused at once
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL):
                    await self._full.wait()

    async def _look(self, *, full: bool) -> None:
        info = await self._bus.api(f"STREAM.INFO.{streams.OBJECTS}", repeat=True)
        config, used, limit = info["config"], int(info["state"]["bytes"]), int(info["config"]["max_bytes"])
        metrics.objects_bytes.set(used)
        metrics.objects_limit.set(limit)
        part = 1.0 if full else used / limit
        kept = int(config["max_msgs_per_subject"])
        if part >= _TIGHT and kept > 1:
            logger.warning("OBJECTS is full to %.0f %%: older versions are purged", 100 * used / limit)
            await self._keep(config, 1)
        elif part >= _TIGHT:
            logger.error("OBJECTS is full to %.0f %%: raise objects.size", 100 * used / limit)
        elif part < _RELAXED and kept == 1 < self._retention.versions:
            logger.info("OBJECTS has room again: %d versions are kept", self._retention.versions)
            await self._keep(config, self._retention.versions)

    async def _keep(self, config: dict[str, object], versions: int) -> None:
        changed = {**config, "max_msgs_per_subject": versions}
        await self._bus.api(f"STREAM.UPDATE.{streams.OBJECTS}", changed)
