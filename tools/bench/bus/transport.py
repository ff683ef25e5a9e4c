"""The cost of a request to NATS: this project's client beside nats-py's own.

`python -m tools.bench.bus.transport` starts a server, and prints the CPU time and the time of a request: for
one request at a time and for 64 at once, as medians of alternating rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import nats

from bus.transport.connection import connected
from tools.bench.bus.emptyruns import bus_server
from windowbox.settings.bussettings import Access

_REQUESTS = 6400
_ROUNDS = 7

Ask = Callable[[], Awaitable[object]]


async def _measured(ask: Ask, at_once: int) -> tuple[float, float]:
    """Microseconds of CPU and of time for each request."""

    async def several() -> None:
        for _ in range(_REQUESTS // at_once):
            await ask()

    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(several() for _ in range(at_once)))
    return (
        1e6 * (time.process_time() - cpu) / _REQUESTS,
        1e6 * (time.perf_counter() - began) / _REQUESTS,
    )


async def main() -> None:
    async with bus_server() as url, connected(Access(url)) as bus:
        plain = await nats.connect(url)
        asks: dict[str, Ask] = {
            "nats-py": lambda: plain.request("$JS.API.INFO", b"", timeout=5),
            "windowbox": lambda: bus.requests.ask("$JS.API.INFO", b"", 5),
        }
        for at_once in (1, 64):
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in asks}
            for _ in range(_ROUNDS):
                for name, ask in asks.items():
                    found[name].append(await _measured(ask, at_once))
            for name, figures in found.items():
                cpu, took = (statistics.median(column) for column in zip(*figures, strict=True))
                print(f"{at_once:3} at once, {name:9}: {cpu:6.1f} µs of CPU, {took:6.1f} µs")
        await plain.close()


if __name__ == "__main__":
    asyncio.run(main())
