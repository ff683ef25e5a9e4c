"""The schema of messages and bucket entries, and which versions of windowbox read it.

Every stream carries it in its metadata. In a rolling upgrade processes of two versions share the bus.
Unknown fields are ignored and missing ones have defaults, so most changes need no new version: only those do
that an older process would read wrongly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from bus.transport.connection import ApiError, Bus
from windowbox.errors import Refused, Unreachable

logger = logging.getLogger(__name__)

_INTERVAL = 60.0
_AGAIN = 5.0
"""Seconds until the next check where the schema is unknown."""
_VERSION, _READER = "windowbox.schema", "windowbox.schema.reader"


class Schema(NamedTuple):
    version: int
    """Counts up with each change that an older process would read wrongly."""
    reader: int
    """The oldest version that reads this one."""

    @property
    def metadata(self) -> dict[str, str]:
        """For a stream's configuration."""
        return {_VERSION: str(self.version), _READER: str(self.reader)}


CURRENT = Schema(version=1, reader=1)


def found(config: Mapping[str, Any]) -> Schema:
    """The schema in a stream's configuration."""
    metadata = config.get("metadata") or {}
    version = int(metadata.get(_VERSION, 1))
    return Schema(version, int(metadata.get(_READER, version)))


def is_newer(config: Mapping[str, Any], ours: Schema = CURRENT) -> bool:
    """Whether a newer version has configured the stream. Refused if this version cannot read it."""
    there = found(config)
    if there.reader > ours.version:
        raise Refused(
            f"stream {config.get('name')} has messages of schema {there.version}, which windowbox "
            f"with schema {there.reader} or newer reads; this one has {ours.version}: run a newer version, "
            "or stop all of windowbox and remove the streams: their content is read again from the clusters"
        )
    return there.version > ours.version


async def check(bus: Bus, stream: str) -> bool:
    """Raise Refused if this version cannot read the messages of a newer one.

    False if that is unknown: the stream does not exist yet, or has no leader at the moment.
    """
    try:
        is_newer((await bus.api(f"STREAM.INFO.{stream}"))["config"])
    except (ApiError, Unreachable) as error:
        logger.info("the schema of %s is not known yet: %s", stream, error)
        return False
    return True


async def watch(bus: Bus, stream: str, interval: float = _INTERVAL) -> None:
    """Check periodically and after each reconnect: a newer version may start meanwhile. Never returns."""
    back = asyncio.Event()
    with bus.on_reconnect(back.set):
        while True:
            back.clear()
            known = await check(bus, stream)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval if known else min(interval, _AGAIN)):
                    await back.wait()
