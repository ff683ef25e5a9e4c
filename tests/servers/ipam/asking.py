"""`run(URL, PREFIX)` allocates addresses in a process of its own, as a worker does.

It reads who asks, and what each has by its status, as one line of JSON, and tells who got what, a line each.
Tests start dozens of these: it imports no pytest.
"""

from __future__ import annotations

import asyncio
import json
import sys

from bus.transport.connection import connected
from tests.servers.ipam.stores import allocate, opened
from windowbox.errors import TransientError
from windowbox.settings.bussettings import Access
from workers.loadbalancer.ipam.results import Allocated
from workers.loadbalancer.ipam.store import AddressStore

AT_ONCE = 16

Status = dict[str, list[str]]


def run(url: str, prefix: str) -> None:
    asyncio.run(main(url, prefix))


async def main(url: str, prefix: str) -> None:
    request: Status = json.loads(sys.stdin.readline())
    room = asyncio.Semaphore(AT_ONCE)
    async with connected(Access(url)) as bus, opened(bus, prefix) as store:
        waiting: set[asyncio.Event] = set()

        def tell() -> None:
            for event in waiting:
                event.set()

        async def serve(name: str, status: list[str]) -> None:
            waiting.add(changed := asyncio.Event())
            async with room:
                while not (addresses := await _allocated(store, name, status)):
                    await changed.wait()
                    changed.clear()
            print(json.dumps([name, addresses]), flush=True)

        store.on_change(tell)
        await asyncio.gather(*(serve(name, status) for name, status in request.items()))


async def _allocated(store: AddressStore, name: str, status: list[str]) -> list[str]:
    try:
        answer = await allocate(store, name, adopt=status)
    except TransientError:
        await asyncio.sleep(0.1)  # as a worker does, before it tries again
        return await _allocated(store, name, status)
    return list(answer.addresses.values()) if isinstance(answer, Allocated) else []
