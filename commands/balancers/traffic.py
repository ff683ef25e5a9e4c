"""A client that opens connections at a constant rate, and counts failures: for the demo."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

_GREETING = re.compile(rb"pod=(\S*) node=(\S*) ")
_PATIENCE = 30.0
"""A connection that is served late, on a machine with much else to do, has not failed."""
_BREATH = 0.1
_LONGEST = 60.0


@dataclass(frozen=True)
class Greeting:
    """Who answered, and after how many seconds."""

    pod: str
    node: str
    seconds: float


@dataclass
class Tally:
    """Results of a client so far."""

    greetings: list[Greeting] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    broken: int = 0
    """Long connections that did not go on."""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each greeting."""

    async def until_greeted_by(self, node: str, since: int) -> None:
        """Wait for a greeting from there, later than the first `since`."""
        await self._until(lambda: any(one.node == node for one in self.greetings[since:]))

    async def until_more(self, count: int) -> None:
        """Wait for so many more greetings."""
        wanted = len(self.greetings) + count
        await self._until(lambda: len(self.greetings) >= wanted)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(_LONGEST):
            while not holds():
                self.heard.clear()
                await self.heard.wait()


async def greeted(address: str, port: int, patience: float = _PATIENCE) -> Greeting:
    """Connect once, and read the greeting."""
    began = time.perf_counter()
    async with asyncio.timeout(patience):
        reader, writer, greeting = await _opened(address, port)
    writer.close()
    del reader
    return Greeting(*greeting, time.perf_counter() - began)


@contextlib.asynccontextmanager
async def steady(address: str, port: int, *, rate: int, lasting: int = 0) -> AsyncIterator[Tally]:
    """So many connections a second, and some that last, while the block does."""
    tally = Tally()
    async with asyncio.TaskGroup() as group:
        long = [group.create_task(_long(tally, address, port)) for _ in range(lasting)]
        opening = group.create_task(_open(tally, address, port, rate, group))
        yield tally
        for task in (opening, *long):
            task.cancel()


async def _open(tally: Tally, address: str, port: int, rate: int, group: asyncio.TaskGroup) -> None:
    began, count = time.monotonic(), 0
    while True:
        while count < (time.monotonic() - began) * rate:
            count += 1
            group.create_task(_short(tally, address, port))
        await asyncio.sleep(1 / rate)


async def _short(tally: Tally, address: str, port: int) -> None:
    try:
        tally.greetings.append(await greeted(address, port))
        tally.heard.set()
    except (OSError, TimeoutError) as error:
        tally.failed.append(str(error) or type(error).__name__)


async def _long(tally: Tally, address: str, port: int) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer, _ = await _opened(address, port)
        while True:
            writer.write(b"still there?\n")
            async with asyncio.timeout(_PATIENCE):
                if await reader.readline() != b"still there?\n":
                    raise ConnectionResetError("closed")
            await asyncio.sleep(_BREATH)
    except (OSError, TimeoutError):
        tally.broken += 1


async def _opened(
    address: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, tuple[str, str]]:
    reader, writer = await asyncio.open_connection(address, port)
    match = _GREETING.match(await reader.readline())
    if not match:
        writer.close()
        raise ConnectionResetError("closed without a greeting")
    return reader, writer, (match[1].decode(), match[2].decode())
