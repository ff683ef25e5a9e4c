"""Finishes what was begun although whoever began it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def to_end(asked: Awaitable[T]) -> T:
    """The result. However often the caller is cancelled, it waits: what it does next must not meet this.

    Cancelled twice is whoever loses a lease while its process ends.
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
        asking.exception()  # whoever cancels does not ask for it
    raise cancelled
