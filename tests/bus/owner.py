"""A process that holds a lease: `python -m tests.bus.owner URL`. It says when it has and when it loses it."""

from __future__ import annotations

import asyncio
import sys

from bus.connection import Access, connected
from bus.leases import Leases


async def act() -> None:
    print("holds", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("lost", flush=True)


async def main(url: str) -> None:
    async with connected(Access(url)) as bus:
        await Leases(bus, "process").while_held("thing", act)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
