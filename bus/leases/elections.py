"""When to sweep: in intervals, and some seconds after the queue's servers have elected another leader.

A leader that the other servers no longer hear does not know that it was deposed. For some seconds it refuses
items as queued which the others have settled, and nobody looks at the wishes of these any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from bus import streams
from bus.transport.connection import Bus, translated
from windowbox.errors import WindowboxError

ELECTED = f"$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.{streams.WORK}"
"""Where servers tell of a new leader of the queue."""
_DEPOSED = 12.0
"""Seconds until a leader that hears nobody has stepped down: servers take 10."""
_LOOK = 15.0
"""Seconds between two looks at who leads: of an election, a server that is cut off tells nobody."""


async def sweeps(
    bus: Bus, interval: float, age: float, deposed: float = _DEPOSED
) -> AsyncGenerator[float, None]:
    """For ever, the age from which on wishes are to be enqueued again: `age`, or none after an election."""
    elected = asyncio.Event()
    timer: asyncio.TimerHandle | None = None

    async def note(_: object) -> None:
        nonlocal timer
        if timer:
            timer.cancel()
        timer = asyncio.get_running_loop().call_later(deposed, elected.set)

    async def look() -> None:
        known = ""
        while True:
            with contextlib.suppress(WindowboxError):
                info = await bus.api(f"STREAM.INFO.{streams.WORK}")
                leader = str(info.get("cluster", {}).get("leader") or known)
                if known not in ("", leader):
                    await note(leader)
                known = leader
            await asyncio.sleep(_LOOK)

    subscription, looking = None, None
    if bus.clustered:
        with translated("subscribe"):
            subscription = await bus.client.subscribe(ELECTED, cb=note)
        looking = asyncio.create_task(look(), name="look at the leader of the queue")
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
