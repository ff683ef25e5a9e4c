"""A process that holds a lease: `python -m tests.servers.bus.owner URL`. It prints both ends."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from bus.leases import leases
from bus.leases.leases import Leases
from bus.transport.connection import connected
from windowbox.settings.bussettings import Access


async def act() -> None:
    leases.check()
    print("holds", flush=True)
    try:
        await asyncio.create_task(look_after())
    finally:
        print("lost", flush=True)


async def look_after() -> None:
    """Tell when the lease counts as ours no longer, be it before we hear of it."""
    with contextlib.suppress(leases.Lost):
        while True:
            leases.check()
            await asyncio.sleep(0.05)  # a lease ends by the clock alone
    print("refrains", flush=True)
    await asyncio.Event().wait()


async def main(url: str) -> None:
    async with connected(Access(url)) as bus:
        await Leases(bus, "process", "work").while_held("thing", act)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
