"""The version of what messages and bucket entries look like, and which versions of windowbox read it.

Every stream carries it in its metadata. In a rolling upgrade processes of two versions share the bus.
Unknown fields are ignored and missing ones have defaults, so most changes need no new number: it is for what
an older process would read wrongly.
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
"""Seconds until the next question where there was no answer."""
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
    """What a stream is said to hold. Versions before the first number say nothing."""
    metadata = config.get("metadata") or {}
    version = int(metadata.get(_VERSION, 1))
    return Schema(version, int(metadata.get(_READER, version)))


def is_newer(config: Mapping[str, Any], ours: Schema = CURRENT) -> bool:
    """Whether a newer version has made the stream what it is. Refused if we could not read it."""
    there = found(config)
    if there.reader > ours.version:
        raise Refused(
            f"stream {config.get('name')} has messages of schema {there.version}, which windowbox "
            f"with schema {there.reader} or newer reads; this one has {ours.version}: run a newer version, "
            "or stop all of windowbox and remove the streams: what they held is read anew from the clusters"
        )
    return there.version > ours.version


async def check(bus: Bus, stream: str) -> bool:
    """Raise Refused where a newer version has filled the bus with what this one cannot read.

    False if that is not known: the stream is not made yet, or has no leader just now.
    """
    try:
        is_newer((await bus.api(f"STREAM.INFO.{stream}"))["config"])
    except (ApiError, Unreachable) as error:
        logger.info("the schema of %s is not known yet: %s", stream, error)
        return False
    return True


async def watch(bus: Bus, stream: str, interval: float = _INTERVAL) -> None:
    """Check for ever, at once after each reconnect: a newer version may come while this process runs."""
    back = asyncio.Event()
    with bus.on_reconnect(back.set):
        while True:
            back.clear()
            known = await check(bus, stream)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval if known else min(interval, _AGAIN)):
                    await back.wait()
