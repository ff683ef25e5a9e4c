"""Concurrent checks of many clusters: those that do not answer must not delay the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable

from bus.outcomes import backoff
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_AT_ONCE = 128
_SUSPECTS_AT_ONCE = 16
"""Of those that failed the last time: a hundred dead clusters delay only one another."""
_PATIENCE = 5.0
"""Seconds to wait for all: a cluster that does not answer is given up after 15."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0


class Checks:
    """Runs each check once at a time, by its key, with backoff after failures."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup
        self._running: dict[Hashable, asyncio.Task[None]] = {}
        self._failures: dict[Hashable, int] = {}
        self._not_before: dict[Hashable, float] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._slots_of_suspects = asyncio.Semaphore(_SUSPECTS_AT_ONCE)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Checks can be begun as long as this lasts."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            yield
            for task in self._running.values():
                task.cancel()

    def begin(self, key: Hashable, act: Callable[[], Awaitable[None]]) -> None:
        """Start the check, unless it is running or in backoff."""
        if key in self._running or self._not_before.get(key, 0.0) > asyncio.get_running_loop().time():
            return
        task = self._group.create_task(self._check(key, act), name=f"check {key}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key))

    async def settle(self) -> None:
        """Wait for the started checks that did not fail before, at most five seconds."""
        waited_for = [task for key, task in self._running.items() if key not in self._failures]
        if waited_for:
            await asyncio.wait(waited_for, timeout=_PATIENCE)

    def forget_all_but(self, keys: Collection[Hashable]) -> None:
        """Drop the backoff of all other keys."""
        for key in self._failures.keys() - keys:
            del self._failures[key]
            self._not_before.pop(key, None)

    async def _check(self, key: Hashable, act: Callable[[], Awaitable[None]]) -> None:
        async with self._slots_of_suspects if key in self._failures else self._slots:
            try:
                await act()
            except WindowboxError as error:
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                pause = backoff(failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
                self._not_before[key] = asyncio.get_running_loop().time() + pause
                logger.info("provider clusters: %s; again in %.0f s", error, pause)
            else:
                self._failures.pop(key, None)
                self._not_before.pop(key, None)
