"""Cancellations: a request is finished although its caller is cancelled, and none is lost."""

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


def check_cancelled(cause: BaseException | None = None) -> None:
    """End this task if it is being cancelled, and what it has called has lost that.

    A group of tasks raises the error of one of them instead, and `asyncio.wait_for` of Python 3.11 returns a
    result that comes at the same time.
    """
    try:
        current = asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return
    if current is not None and current.cancelling():
        raise asyncio.CancelledError from cause
