"""Finishes a request although its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def to_end(asked: Awaitable[T]) -> T:
    """The result. A cancelled caller waits for the end, too: its next request must not overtake this one.

    A caller is cancelled twice if it loses a lease while its process ends.
    """
    asking = asyncio.ensure_future(asked)
    cancelled: asyncio.CancelledError | None = None
    while not asking.done():
        try:
            await asyncio.wait([asking])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return asking.result()
    if not asking.cancelled():
        asking.exception()  # mark it as retrieved: a cancelled caller ignores it
    raise cancelled
