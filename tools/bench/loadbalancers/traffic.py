"""Clients of load balancers: what they get, and when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from commands.demo.traffic import first_line
from tools.bench.client import background
from windowbox.models.objects import Object

PATIENCE = 30.0
CONNECTING = 5.0
"""Seconds that a client waits for a connection and its greeting."""
_PAUSE = 0.002


class Served(NamedTuple):
    """A connection that was served."""

    begun: float
    ended: float
    node: str


class Failure(NamedTuple):
    """A connection that failed."""

    begun: float
    why: str


@dataclass
class Caller:
    """A client that opens connections at a constant rate, and records their results."""

    address: str
    port: int
    forwarding_node: Callable[[str], str] = lambda greeting: ""
    served: list[Served] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def calling(self, rate: int) -> AsyncIterator[None]:
        """Call during the block."""

        async def connect() -> None:
            begun = time.perf_counter()
            try:
                said = await first_line(self.address, self.port, CONNECTING)
            except OSError as error:
                self.failed.append(Failure(begun, f"{error!r} after {time.perf_counter() - begun:.3f} s"))
            else:
                self.served.append(Served(begun, time.perf_counter(), self.forwarding_node(said)))

        async def call() -> None:
            # The average rate is kept: connections that a busy machine delays are opened later.
            begun, count = time.perf_counter(), 0
            async with asyncio.TaskGroup() as group:
                while True:
                    while count < (time.perf_counter() - begun) * rate:
                        count += 1
                        group.create_task(connect())
                    await asyncio.sleep(1 / rate)

        async with background(call(), "caller"):
            yield

    async def entered(self, node: str, since: float) -> float:
        """The time of the first connection through this node that was opened after `since`."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for one in self.served:
                    if one.node == node and one.begun > since:
                        return one.ended
                await asyncio.sleep(_PAUSE)

    async def left(self, node: str, since: float, *, connections: int = 100) -> float:
        """The time of the last connection through this node, once so many others have followed it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                begun = [one.begun for one in self.served if one.node == node and one.begun > since]
                last = max(begun, default=since)
                if sum(one.begun > last for one in self.served) >= connections:
                    return last
                await asyncio.sleep(_PAUSE)

    async def until_calm(self, calm: float, patience: float) -> None:
        """Wait until connections are served, and none has failed for `calm` seconds."""
        async with asyncio.timeout(patience):
            while True:
                last = max((one.begun for one in self.failed), default=0.0)
                if self.served and time.perf_counter() - last > calm:
                    return
                await asyncio.sleep(0.02)

    def forget(self) -> None:
        """Drop all but the last connections, so that scanning them stays cheap."""
        del self.served[:-1000]


async def reached(address: str, port: int) -> tuple[float, int]:
    """The time of the first successful connection, and the number of failed ones before."""
    failed = 0
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await first_line(address, port, CONNECTING)
            except OSError:
                failed += 1
                await asyncio.sleep(_PAUSE)
            else:
                return time.perf_counter(), failed


async def refused(address: str, port: int) -> float:
    """The time of the first refused connection."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await first_line(address, port, CONNECTING)
            except ConnectionRefusedError:
                return time.perf_counter()
            except OSError:
                pass
            await asyncio.sleep(_PAUSE)


def ingress(service: Object) -> str:
    """The first address that the status shows; empty if there is none."""
    balancer = service.status.get("loadBalancer")
    entries = balancer.get("ingress") if isinstance(balancer, dict) else None
    return str(entries[0].get("ip", "")) if entries else ""
