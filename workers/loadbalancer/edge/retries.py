"""Backoff of what the edge tries again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bus.outcomes import backoff
from windowbox.errors import TransientError
from windowbox.models.refs import ObjectRef

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Retries:
    """Calls `retry` for what has failed, later after each failure in a row."""

    def __init__(self, retry: Callable[[ObjectRef], None]) -> None:
        self._retry = retry
        self._failures: dict[ObjectRef, int] = {}
        self._scheduled: set[ObjectRef] = set()

    def failed(self, ref: ObjectRef) -> None:
        if ref in self._scheduled:
            return
        self._scheduled.add(ref)
        failures = self._failures[ref] = self._failures.get(ref, 0) + 1

        def due() -> None:
            self._scheduled.discard(ref)
            self._retry(ref)

        asyncio.get_running_loop().call_later(backoff(failures, first=1.0, longest=60.0), due)

    def succeeded(self, ref: ObjectRef) -> None:
        self._failures.pop(ref, None)


def pause_after(failures: int) -> float:
    """Seconds until Envoys are tried again after so many failures in a row."""
    return backoff(failures, first=0.2, longest=10)


async def until_reached(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of what runs Envoys, however long that is away."""
    failures = 0
    while True:
        try:
            return await ask()
        except TransientError as error:
            failures += 1
            pause = pause_after(failures)
            logger.warning("edge: %s; again in %.1f s", error, pause)
            await asyncio.sleep(pause)
