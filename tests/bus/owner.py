"""A process that holds a lease: `python -m tests.bus.owner URL`. It says when it has and when it loses it."""

from __future__ import annotations

import asyncio
import sys
import time

from bus import leases, streams
from bus.connection import Access, connected
from bus.leases import Leases


async def act() -> None:
    leases.check()
    print("holds", flush=True)
    try:
        await asyncio.create_task(look_after(time.monotonic()))
    finally:
        print("lost", flush=True)


async def look_after(seen: float) -> None:
    """Tell whether the lease counts as ours at the first moment after we were stopped for long."""
    while True:
        await asyncio.sleep(0.05)
        seen, before = time.monotonic(), seen
        if seen - before > streams.LEASE_SECONDS:
            try:
                leases.check()
                print("goes on", flush=True)
            except leases.Lost:
                print("refrains", flush=True)
            await asyncio.Event().wait()


async def main(url: str) -> None:
    async with connected(Access(url)) as bus:
        await Leases(bus, "process").while_held("thing", act)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
