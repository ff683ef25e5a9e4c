"""Processes of tests: `python -m tests.servers.bus.programs work|own|schedule URL …`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from bus.leases import leases
from bus.leases.leases import Leases
from bus.messages import Reason, Wish
from bus.transport.connection import connected
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from sandbox.nodes import network
from tests.servers.bus.handlers import POOL, Said, Telling, key
from tests.support import namespaces
from windowbox.settings.bussettings import Access
from windowbox.telemetry import stalls


async def work(url: str, ack_wait: str, ca: str = "") -> None:
    """A worker. A line opens its gate."""

    def say(said: Said) -> None:
        print(json.dumps(dataclasses.asdict(said)), flush=True)

    loop, stdin = asyncio.get_running_loop(), sys.stdin
    async with connected(Access(url, ca=Path(ca) if ca else None)) as bus:
        handler = Telling(bus, say)
        loop.add_reader(stdin, lambda: handler.gate.set() if stdin.readline() else loop.remove_reader(stdin))
        working = asyncio.create_task(Pool(bus, POOL, handler, ack_wait=float(ack_wait)).run())
        loop.add_signal_handler(signal.SIGTERM, working.cancel)
        with stalls.watched():
            await asyncio.wait([working])


async def own(url: str) -> None:
    """Hold a lease, and print when that begins and ends."""

    async def act() -> None:
        leases.check()
        print("holds", flush=True)
        try:
            await asyncio.create_task(refrain())
        finally:
            print("lost", flush=True)

    async def refrain() -> None:
        """Print when the lease no longer counts as ours, perhaps before the bus says so."""
        with contextlib.suppress(leases.Lost):
            while True:
                leases.check()
                await asyncio.sleep(0.05)  # a lease ends by the clock alone
        print("refrains", flush=True)
        await asyncio.Event().wait()

    async with connected(Access(url)) as bus:
        await Leases(bus, "process", "work").while_held("thing", act)


async def schedule(url: str, name: str, after: str) -> None:
    """Schedule a wish, and print the time of this process."""
    async with connected(Access(url)) as bus:
        await Queue(bus, POOL).schedule(key(name), Wish(reason=Reason.RETRY), float(after))
    print(time.time())


def run_in(namespace: str, name: str, *arguments: str) -> None:
    """The same in a network namespace; in that of the tests if none is named."""
    if namespace:
        namespaces.enter(network.namespace_path(namespace))
    run(name, *arguments)


def run(name: str, *arguments: str) -> None:
    programs: dict[str, Callable[..., Coroutine[None, None, None]]]
    programs = {"work": work, "own": own, "schedule": schedule}
    asyncio.run(programs[name](*arguments))


if __name__ == "__main__":
    run(*sys.argv[1:])
