"""Purges the objects of clusters that have left from the bus."""

from __future__ import annotations

import asyncio
import logging

from bus import streams, subjects
from bus.messages import OPERATION
from bus.transport.connection import Bus
from bus.transport.finishing import to_end
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_PROPAGATION_SECONDS = 2.0
"""Seconds after which all followers of the stream have received a message."""


async def kinds_of(bus: Bus, cluster: str) -> set[str]:
    """The kinds of the cluster's objects on the bus."""
    while True:
        try:
            request = {"subjects_filter": subjects.seen_cluster(cluster)}
            info = await bus.api(f"STREAM.INFO.{streams.OBJECTS}", request)
            return {subjects.seen_of_kind(one) for one in info["state"].get("subjects") or ()}
        except WindowboxError as error:
            logger.warning("%s: its objects on the bus cannot be listed: %s", cluster, error)
            await asyncio.sleep(1)


async def purge(bus: Bus, cluster: str, kind: str) -> None:
    """Purge a kind that no watcher mirrors any more, except objects that are announced from now on."""
    listed = subjects.listed(cluster, kind)
    while True:
        try:
            # A purge sends no message to followers, so the marker comes first.
            end = await to_end(bus.publish(listed, b"", {OPERATION: "DELETED"}))
            assert end is not None  # no message id, so never a duplicate
            # A cancelled caller waits: its next request must not overtake the purge.
            await to_end(bus.purge(streams.OBJECTS, subjects.seen_kind(cluster, kind), end))
            await asyncio.sleep(_PROPAGATION_SECONDS)
            return await bus.purge(streams.OBJECTS, listed, end + 1)
        except WindowboxError as error:
            logger.warning("%s %s: not purged: %s", cluster, kind, error)
            await asyncio.sleep(1)
