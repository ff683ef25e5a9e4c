"""Acts on many things at once, but not on all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_AT_ONCE = 32


async def each(of: Iterable[T], act: Callable[[T], Awaitable[None]]) -> None:
    """`act` on each of these."""
    left = iter(of)

    async def worker() -> None:
        for one in left:
            await act(one)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(worker())
