"""Observers of load balancers: their status, addresses and traffic."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from bus import streams, subjects
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus
from tools.bench.client import Client
from windowbox.errors import Refused, Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES

_PATIENCE = 30.0
_ONE = 5.0
"""Seconds that a client gives a connection."""
_PAUSE = 0.002

Holds = Callable[[Object | None], object]
Seen = tuple[float, Object | None]


class Services:
    """Watches Services; None for a deleted Service."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Holds, asyncio.Future[Seen]]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def watched(cls, client: Client) -> AsyncIterator[Services]:
        services = cls()
        version = await client.version(SERVICES)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(services._watch(client, version), name="services")
            yield services
            watching.cancel()

    async def sees(self, name: str, holds: Holds, patience: float = _PATIENCE) -> Seen:
        """The time at which this holds first from now on, and the Service at that time."""
        future: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
        self._waiting[name] = holds, future
        try:
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError:
            raise Unreachable(f"{name} is not as it should be after {patience:.0f} s") from None

    async def _watch(self, client: Client, version: str) -> None:
        while True:
            async for lines in client.events(version, SERVICES):
                now = time.perf_counter()
                for event in map(orjson.loads, lines):
                    if event["type"] == "ERROR":
                        raise Refused(f"watch: {event['object'].get('message')}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    found = Object(event["object"])
                    self._note(found.name, None if event["type"] == "DELETED" else found, now)

    def _note(self, name: str, found: Object | None, now: float) -> None:
        holds, future = self._waiting.get(name, (None, None))
        if holds and future and holds(found):
            del self._waiting[name]
            if not future.done():
                future.set_result((now, found))


class Addresses:
    """Watches the address store."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, streams.ADDRESSES)
        self._bucket.on_change(self._changed)
        self._waiting: dict[str, asyncio.Future[float]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def followed(cls, bus: Bus) -> AsyncIterator[Addresses]:
        addresses = cls(bus)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(addresses._bucket.run(), name="addresses")
            await addresses._bucket.complete.wait()
            yield addresses
            following.cancel()

    async def freed(self, address: str) -> float:
        """When no Service had the address any more."""
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[address] = future
        try:
            async with asyncio.timeout(_PATIENCE):
                return await future
        except TimeoutError:
            raise Unreachable(f"{address} is not free after {_PATIENCE:.0f} s") from None

    def _changed(self, key: str, value: bytes | None) -> None:
        future = self._waiting.pop(subjects.address(key) or "", None) if value is None else None
        if future and not future.done():
            future.set_result(time.perf_counter())


class Served(NamedTuple):
    """A connection that was served."""

    begun: float
    ended: float
    node: str


@dataclass
class Caller:
    """A client that opens connections at a constant rate, and records their results."""

    address: str
    port: int
    forwarding_node: Callable[[str], str]
    served: list[Served] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def calling(self, rate: int) -> AsyncIterator[Caller]:
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(self._call(rate, group), name="caller")
            yield self
            calling.cancel()

    async def entered(self, node: str, since: float) -> float:
        """The time of the first connection through this node that was opened after `since`."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                for one in self.served:
                    if one.node == node and one.begun > since:
                        return one.ended
                await asyncio.sleep(_PAUSE)

    async def left(self, node: str, since: float, *, connections: int = 100) -> float:
        """The time of the last connection through this node; that many others have followed it."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                begun = [one.begun for one in self.served if one.node == node and one.begun > since]
                last = max(begun, default=since)
                if sum(one.begun > last for one in self.served) >= connections:
                    return last
                await asyncio.sleep(_PAUSE)

    def forget(self) -> None:
        """What was long ago."""
        del self.served[:-1000]

    async def _call(self, rate: int, group: asyncio.TaskGroup) -> None:
        begun, count = time.perf_counter(), 0
        while True:
            while count < (time.perf_counter() - begun) * rate:
                count += 1
                group.create_task(self._one())
            await asyncio.sleep(1 / rate)

    async def _one(self) -> None:
        begun = time.perf_counter()
        try:
            said = await greeting(self.address, self.port)
        except (OSError, TimeoutError) as error:
            self.failed.append(f"{error!r} after {time.perf_counter() - begun:.3f} s")
        else:
            self.served.append(Served(begun, time.perf_counter(), self.forwarding_node(said)))


async def greeting(address: str, port: int) -> str:
    """The first line from the server. OSError if the connection fails or ends without one."""
    async with asyncio.timeout(_ONE):
        reader, writer = await asyncio.open_connection(address, port)
        try:
            line = (await reader.readline()).decode().strip()
        finally:
            writer.close()
    if not line:
        raise ConnectionResetError("closed without a word")
    return line


async def reached(address: str, port: int) -> tuple[float, int]:
    """The time of the first successful connection, and the number of failed ones before."""
    failed = 0
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                await greeting(address, port)
            except OSError:
                failed += 1
                await asyncio.sleep(_PAUSE)
            else:
                return time.perf_counter(), failed


async def refused(address: str, port: int) -> float:
    """When connections were refused."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                await greeting(address, port)
            except ConnectionRefusedError:
                return time.perf_counter()
            except OSError:
                pass
            await asyncio.sleep(_PAUSE)


def ingress(service: Object | None) -> str:
    """The first address that the status shows; empty if there is none."""
    balancer = service.status.get("loadBalancer") if service else None
    entries = balancer.get("ingress") if isinstance(balancer, dict) else None
    return str(entries[0].get("ip", "")) if entries else ""
