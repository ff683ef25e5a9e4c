"""A worker process: `python -m tests.servers.bus.worker URL ACK_WAIT [CA]`. A line opens its gate."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
from pathlib import Path

from bus.transport.connection import connected
from bus.workqueue.pool import Pool
from tests.servers.bus.handlers import POOL, Said, Telling
from windowbox.settings.bussettings import Access
from windowbox.telemetry import stalls


def tell(said: Said) -> None:
    print(json.dumps(dataclasses.asdict(said)), flush=True)


async def main(url: str, ack_wait: float, ca: Path | None) -> None:
    loop = asyncio.get_running_loop()
    async with connected(Access(url, ca=ca)) as bus:
        handler = Telling(bus, tell)
        loop.add_reader(
            sys.stdin.fileno(),
            lambda: handler.gate.set() if sys.stdin.readline() else loop.remove_reader(sys.stdin.fileno()),
        )
        work = asyncio.create_task(Pool(bus, POOL, handler, ack_wait=ack_wait).run())
        loop.add_signal_handler(signal.SIGTERM, work.cancel)
        with stalls.watched():
            await asyncio.wait([work])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None))
