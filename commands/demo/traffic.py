"""A client that opens connections at a constant rate, and counts failures."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from windowbox.errors import Unreachable

_GREETING = re.compile(r"pod=(\S*) node=(\S*)( |$)")
_PATIENCE = 30.0
"""Generous, because a connection that a busy machine serves late has not failed."""
_PAUSE = 0.1
_LONGEST = 60.0
_RECENT = 20
_PING = b"still there?\n"


@dataclass(frozen=True)
class Greeting:
    """The node that answered, and the seconds until then."""

    node: str
    seconds: float


@dataclass(frozen=True)
class Failure:
    """A connection without a greeting: when it was opened and closed."""

    began: float
    ended: float


@dataclass
class Tally:
    """Results of a client so far."""

    greetings: list[Greeting] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    broken: int = 0
    """Long connections that broke."""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each greeting."""

    async def until_greeted_by(self, node: str, since: int) -> None:
        """Wait for a greeting from this node, later than the first `since`."""
        await self._until(lambda: any(one.node == node for one in self.greetings[since:]))

    async def until_more(self, count: int) -> None:
        """Wait for so many more greetings."""
        wanted = len(self.greetings) + count
        await self._until(lambda: len(self.greetings) >= wanted)

    async def _until(self, holds: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(_LONGEST):
                while not holds():
                    self.heard.clear()
                    await self.heard.wait()
        except TimeoutError:
            seen = Counter(greeting.node for greeting in self.greetings[-_RECENT:])
            raise Unreachable(
                f"connections are not answered as expected after {_LONGEST:g} s; the last {_RECENT} were of "
                f"{dict(seen) or 'nobody'}: `windowbox lb list` and `windowbox doctor` tell more"
            ) from None


def parsed(line: str) -> tuple[str, str]:
    """The Pod and the node in a greeting of an echo server."""
    match = _GREETING.match(line)
    if not match:
        raise ConnectionResetError(f"answered {line!r}, which is no greeting")
    return match[1], match[2]


async def first_line(address: str, port: int, patience: float = _PATIENCE) -> str:
    """Connect once, and read the first line; OSError if there is none."""
    async with asyncio.timeout(patience):
        reader, writer = await asyncio.open_connection(address, port)
        with contextlib.closing(writer):
            line = await reader.readline()
    if not line:
        raise ConnectionResetError("closed without a greeting")
    return line.decode(errors="replace").strip()


@contextlib.asynccontextmanager
async def steady(address: str, port: int, *, rate: int, lasting: int = 0) -> AsyncIterator[Tally]:
    """During the block, open `rate` connections a second, and keep `lasting` ones open."""
    tally = Tally()

    async def connect() -> None:
        began = time.perf_counter()
        try:
            _, node = parsed(await first_line(address, port))
        except OSError:
            tally.failed.append(Failure(began, time.perf_counter()))
        else:
            tally.greetings.append(Greeting(node, time.perf_counter() - began))
            tally.heard.set()

    async def stay_connected() -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_connection(address, port)
                await reader.readline()
            while True:
                writer.write(_PING)
                async with asyncio.timeout(_PATIENCE):
                    if await reader.readline() != _PING:
                        raise ConnectionResetError("closed")
                await asyncio.sleep(_PAUSE)
        except OSError:
            tally.broken += 1

    async def keep_rate(group: asyncio.TaskGroup) -> None:
        began, count = time.monotonic(), 0
        while True:
            # Keep the average rate: open connections that a busy machine has delayed later.
            while count < (time.monotonic() - began) * rate:
                count += 1
                group.create_task(connect())
            await asyncio.sleep(1 / rate)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(keep_rate(group)),
                *(group.create_task(stay_connected()) for _ in range(lasting)),
            ]
            yield tally
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        # What the block has raised, as it is.
        raise errors.exceptions[0] from None
