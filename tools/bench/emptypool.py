"""A worker process with an empty reconciler: measures the cost of the bus alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time

import uvloop

from bus.outcomes import Done, Outcome
from bus.transport.connection import connected
from bus.workqueue.pool import Item, Pool
from tools.bench.usage import usage
from windowbox.settings.bussettings import Access

POOL = "bench"


class Nothing:
    """An empty reconciler that counts."""

    def __init__(self) -> None:
        self.handled = 0
        self.first = 0.0
        self._cpu_before = 0.0

    async def handle(self, item: Item) -> Outcome:
        if not self.handled:
            self.first, self._cpu_before = time.monotonic(), usage(os.getpid()).cpu
        self.handled += 1
        return Done()

    async def quarantine(self, item: Item) -> None:
        raise NotImplementedError

    def report(self) -> str:
        cpu = usage(os.getpid()).cpu - self._cpu_before if self.handled else 0.0
        return json.dumps({"handled": self.handled, "first": self.first, "cpu": cpu})


async def _main(url: str) -> None:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    nothing = Nothing()
    with contextlib.suppress(asyncio.CancelledError):
        async with connected(Access(url)) as bus:
            print("ready", flush=True)
            # All processes start together, on a signal.
            await asyncio.to_thread(sys.stdin.readline)
            await Pool(bus, POOL, nothing).run()
    print(nothing.report())


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
