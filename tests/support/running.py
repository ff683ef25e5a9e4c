"""Background tasks of tests, and waiting for their effects."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar, overload

T = TypeVar("T")

_POLL, _SLOWEST_POLL = 0.02, 0.2
"""Seconds between two looks at first, and after many: a look costs the server that is asked, too."""

PATIENCE = 60.0
"""Seconds until a test gives up waiting. None should ever wait that long."""


@contextlib.asynccontextmanager
async def running(*work: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run `work` concurrently with the body; its failure fails the test."""
    tasks = [asyncio.create_task(w) for w in work]
    try:
        yield tasks
    finally:
        await stopped(*tasks)


async def stopped(*tasks: asyncio.Task[None]) -> None:
    """Cancel, and wait until all have ended."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def soon(happens: Awaitable[T]) -> T:
    """The awaited result, within a timeout."""
    async with asyncio.timeout(PATIENCE):
        return await happens


@overload
async def eventually(look: Callable[[], Awaitable[T]], patience: float = ...) -> T: ...
@overload
async def eventually(look: Callable[[], bool], patience: float = ...) -> bool: ...
async def eventually(look: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Poll until the condition holds: for states of other processes, which send no events."""
    pause = _POLL
    async with asyncio.timeout(patience):
        while not (seen := await found if inspect.isawaitable(found := look()) else found):
            await asyncio.sleep(pause)  # see above: no event
            pause = min(1.2 * pause, _SLOWEST_POLL)
        return seen
