"""Checks of the bus before the heartbeat: queues, workers, watchers, patchers."""

from __future__ import annotations

from bus import streams, subjects
from bus.intents import PATCH
from bus.transport.connection import ApiError, Bus, instant
from windowbox.kinds import POOLS


async def problem(bus: Bus, limit: float) -> str:
    """What is wrong with patchers or workers; nothing if they are well."""
    return await _patcher_missing(bus) or await _overdue(bus, limit)


async def _patcher_missing(bus: Bus) -> str:
    """Whether somebody is there to write status: one who has nothing to do asks the bus for something."""
    try:
        info = await bus.api(f"CONSUMER.INFO.{streams.WORK}.pool-{PATCH}")
    except ApiError as error:
        return f"no patcher has come yet ({error})"
    busy = int(info["num_ack_pending"]) > 0
    return "" if busy or int(info["num_waiting"]) > 0 else "no patcher asks for work"


async def _overdue(bus: Bus, limit: float) -> str:
    """Whether something has been owed for too long: then those of its pool are stuck, or not there."""
    now = await bus.now()
    for pool in (PATCH, *POOLS):
        oldest = await bus.first(streams.TRIGGERS, subjects.wish(pool, ">"))
        if oldest is not None and now - instant(oldest.time) > limit:
            return f"something in the queue of {pool} has waited for {now - instant(oldest.time):.0f} s"
    return ""
