"""Schedules a wish: `python -m tests.servers.bus.scheduler URL NAME SECONDS`. It tells its own time."""

from __future__ import annotations

import asyncio
import sys
import time

from bus.messages import Reason, Wish
from bus.transport.connection import connected
from bus.workqueue.queue import Queue
from tests.servers.bus.handlers import POOL, key
from windowbox.settings.bussettings import Access


async def main(url: str, name: str, after: float) -> None:
    async with connected(Access(url)) as bus:
        await Queue(bus, POOL).schedule(key(name), Wish(reason=Reason.RETRY), after)
    print(time.time())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
