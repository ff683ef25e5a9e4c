"""A process that allocates addresses to many Services: `python -m tests.servers.ipam.allocating URL PREFIX`.

It reads who asks, and what each has by its status, as one line of JSON, and tells who got what, a line each.
"""

from __future__ import annotations

import asyncio
import json
import sys

from bus.transport.connection import connected
from tests.servers.ipam.stores import V4, opened, range_of, service
from windowbox.errors import TransientError
from windowbox.settings.bussettings import Access
from workers.loadbalancer.ipam import allocator
from workers.loadbalancer.ipam.results import AddressRequest, Allocated
from workers.loadbalancer.ipam.store import AddressStore

_AT_ONCE = 64


async def main(url: str, prefix: str) -> None:
    request: dict[str, list[str]] = json.loads(sys.stdin.readline())
    room = asyncio.Semaphore(_AT_ONCE)
    async with connected(Access(url)) as bus, opened(bus, range_of(prefix)) as store:
        changed = asyncio.Condition()

        async def tell() -> None:
            async with changed:
                changed.notify_all()

        tellings: set[asyncio.Task[None]] = set()
        store.on_change(lambda: tellings.add(asyncio.create_task(tell())))

        async def serve(name: str, status: list[str]) -> None:
            async with room:
                while not (addresses := await _allocated(store, name, status)):
                    async with changed:
                        await changed.wait()
            print(json.dumps({"name": name, "addresses": addresses}), flush=True)

        await asyncio.gather(*(serve(name, status) for name, status in request.items()))


async def _allocated(store: AddressStore, name: str, status: list[str]) -> list[str]:
    request = AddressRequest(service(name), name, V4, ports=("80/TCP",), adopt=tuple(status))
    try:
        answer = await allocator.allocate(store, request)
    except TransientError:
        await asyncio.sleep(0.1)  # as a worker does, before it tries again
        return await _allocated(store, name, status)
    return list(answer.addresses.values()) if isinstance(answer, Allocated) else []


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
