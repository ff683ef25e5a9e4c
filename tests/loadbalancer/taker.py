"""A process that takes addresses for many Services at once: `python -m tests.loadbalancer.taker URL PREFIX`.

It reads who asks, and what each has by its status, as one line of JSON, and tells who got what, a line each.
"""

from __future__ import annotations

import asyncio
import json
import sys

from bus.connection import Access, connected
from tests.loadbalancer.books import V4, opened, range_of, service
from windowbox.errors import TransientError
from workers.loadbalancer.answers import Taken
from workers.loadbalancer.book import Book

_AT_ONCE = 64


async def main(url: str, prefix: str) -> None:
    asking: dict[str, list[str]] = json.loads(sys.stdin.readline())
    room = asyncio.Semaphore(_AT_ONCE)
    async with connected(Access(url)) as bus, opened(bus, range_of(prefix)) as book:
        changed = asyncio.Condition()

        async def tell() -> None:
            async with changed:
                changed.notify_all()

        tellings: set[asyncio.Task[None]] = set()
        book.on_change(lambda: tellings.add(asyncio.create_task(tell())))

        async def serve(name: str, status: list[str]) -> None:
            async with room:
                while not (addresses := await _taken(book, name, status)):
                    async with changed:
                        await changed.wait()
            print(json.dumps({"name": name, "addresses": addresses}), flush=True)

        await asyncio.gather(*(serve(name, status) for name, status in asking.items()))


async def _taken(book: Book, name: str, status: list[str]) -> list[str]:
    try:
        answer = await book.take(service(name), name, V4, ports=("80/TCP",), adopt=status)
    except TransientError:
        await asyncio.sleep(0.1)
        return await _taken(book, name, status)
    return list(answer.addresses.values()) if isinstance(answer, Taken) else []


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
