"""When to sweep: periodically, and some seconds after the queue's servers have elected a new leader.

A leader that is cut off from the other servers does not know that it was deposed. For some seconds it refuses
items as queued that the other servers have settled, and the wishes of these would stay without an item.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from bus import streams
from bus.leases import guard
from bus.transport.connection import Bus, translated
from windowbox.errors import WindowboxError

ELECTED = f"$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.{streams.WORK}"
"""Where servers announce a new leader of the queue."""
_DEPOSED = 12.0
"""Seconds until a leader without followers has stepped down: servers take 10."""
_LOOK = 15.0
"""Seconds between two checks of the leader: a server that is cut off announces no election."""


async def sweeps(
    bus: Bus, interval: float, age: float, deposed: float = _DEPOSED
) -> AsyncGenerator[float, None]:
    """Yield, when a sweep is due, the age of the wishes to enqueue: `age`, or 0 after an election."""
    elected = asyncio.Event()
    timer: asyncio.TimerHandle | None = None

    async def note(_: object) -> None:
        nonlocal timer
        if timer:
            timer.cancel()
        timer = asyncio.get_running_loop().call_later(deposed, elected.set)

    subscription, looking = None, None
    if bus.clustered:
        with translated("subscribe"):
            subscription = await bus.client.subscribe(ELECTED, cb=note)
        looking = asyncio.create_task(
            guard.kept("leader of the queue", lambda: _look(bus, note)),
            name="look at the leader of the queue",
        )
    try:
        yield age
        while True:
            try:
                async with asyncio.timeout(interval):
                    await elected.wait()
            except TimeoutError:
                yield age
                continue
            elected.clear()
            yield 0.0
    finally:
        if timer:
            timer.cancel()
        if looking:
            looking.cancel()
            await asyncio.wait([looking])
        if subscription and bus.connected:
            with translated("unsubscribe"):
                await subscription.unsubscribe()


async def _look(bus: Bus, elected: Callable[[str], Awaitable[None]]) -> None:
    """Tell which server leads the queue whenever that has changed; never returns."""
    known = ""
    while True:
        with contextlib.suppress(WindowboxError):
            info = await bus.api(f"STREAM.INFO.{streams.WORK}")
            leader = str(info.get("cluster", {}).get("leader") or known)
            if known not in ("", leader):
                await elected(leader)
            known = leader
        await asyncio.sleep(_LOOK)
