"""The state of the bus: processes, streams, pools. For `status` and `top`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import aiohttp

from bus import intents, streams, subjects
from bus.leases import presence
from bus.transport.connection import ApiError, Bus
from bus.workqueue.queue import Depth, Queue
from commands import busoptions
from commands.formatting import edge_lines, size
from windowbox.errors import WindowboxError
from windowbox.kinds import POOLS
from windowbox.settings.settings import Settings
from workers.loadbalancer.edge import edgestatus
from workers.loadbalancer.edge.edgestatus import EdgeStatus

_MONITOR_SECONDS = 2.0
_SERVER = ("version", "uptime", "mem", "cpu", "connections", "slow_consumers", "in_msgs", "out_msgs")


@dataclass(frozen=True)
class Stream:
    name: str
    messages: int
    bytes: int


@dataclass(frozen=True)
class PoolState:
    """A pool's queue, and its workers."""

    pool: str
    workers: int = 0
    waiting: int = 0
    in_flight: int = 0
    oldest_seconds: float = 0.0
    """Age of the oldest wish that has not succeeded."""
    redelivered: int = 0
    """Items in flight that were delivered before, to a worker that did not finish them."""
    unrouted: int = 0
    """Changes that have not been mapped to keys yet."""


@dataclass(frozen=True)
class BusState:
    """The bus at one moment."""

    processes: list[dict[str, Any]]
    streams: list[Stream]
    pools: list[PoolState]
    server: dict[str, Any] | None
    """Statistics of the server, if its monitoring address is known."""
    edge: EdgeStatus | None = None
    """The status of the edge, if it has an owner."""
    reports: Depth | None = None
    """Reports that patchers write as they come; None if no patcher has ever run."""

    def as_json(self) -> dict[str, Any]:
        edge = self.edge.model_dump(include={"count", "hosts", "envoys", "ranges"}) if self.edge else None
        reports = self.reports._asdict() if self.reports else None
        return {**asdict(replace(self, edge=None)), "edge": edge, "reports": reports}


def bus_status(settings: Settings, monitor: str | None = None) -> BusState:
    """The state of the bus now."""

    async def ask() -> BusState:
        async with busoptions.connected(settings, "status") as bus:
            return await read(bus, monitor)

    return asyncio.run(ask())


async def read(bus: Bus, monitor: str | None) -> BusState:
    """The processes, the server, its streams and its pools."""
    present = await presence.processes(bus)
    found = []
    for name in [wanted["name"] for wanted in streams.streams(1)]:
        with contextlib.suppress(ApiError):
            state = (await bus.api(f"STREAM.INFO.{name}"))["state"]
            found.append(Stream(name, int(state["messages"]), int(state["bytes"])))
    figures = await server(monitor) if monitor else None
    edge = None
    # The owner of the edge may be absent, or be about to end.
    with contextlib.suppress(WindowboxError):
        edge = await edgestatus.query(bus)
    reports = None
    with contextlib.suppress(ApiError):
        reports = await intents.depth(bus)
    return BusState(present, found, await pools(bus, present, at_rest=True), figures, edge, reports)


async def pools(bus: Bus, present: Sequence[dict[str, Any]], *, at_rest: bool) -> list[PoolState]:
    """All pools. `present` are the processes that have described themselves.

    `at_rest`: ask for the oldest wish of pools in which nothing waits, too.
    """
    names = (*POOLS, intents.PATCH)
    return list(await asyncio.gather(*(_pool(bus, name, present, at_rest) for name in names)))


async def _pool(bus: Bus, pool: str, present: Sequence[dict[str, Any]], at_rest: bool) -> PoolState:
    workers = sum(any(each["pool"] == pool for each in p.get("pools", ())) for p in present)
    try:
        items = await bus.api(f"CONSUMER.INFO.{streams.WORK}.pool-{pool}")
    except ApiError:  # no worker has ever served the pool, but objects may wait
        request = {"subjects_filter": subjects.item(pool, ">")}
        state: dict[str, Any] = {}
        with contextlib.suppress(ApiError):
            state = (await bus.api(f"STREAM.INFO.{streams.WORK}", request))["state"]
        return PoolState(pool, workers, len(state.get("subjects") or ()))
    waiting, in_flight, oldest = int(items["num_pending"]), int(items["num_ack_pending"]), 0.0
    if at_rest or waiting or in_flight:
        oldest = (await Queue(bus, pool).depth()).oldest_seconds
    unrouted = 0
    if pool != intents.PATCH:
        with contextlib.suppress(ApiError):
            routing = await bus.api(f"CONSUMER.INFO.{streams.OBJECTS}.route-{pool}")
            unrouted = int(routing["num_pending"]) + int(routing["num_ack_pending"])
    return PoolState(pool, workers, waiting, in_flight, oldest, int(items["num_redelivered"]), unrouted)


async def server(monitor: str) -> dict[str, Any] | None:
    """The NATS server's own statistics; None if it does not answer."""
    timeout = aiohttp.ClientTimeout(total=_MONITOR_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{monitor.rstrip('/')}/varz", allow_redirects=False) as answer,
        ):
            figures = await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
    return {name: figures.get(name) for name in _SERVER}


def lines(found: BusState) -> Iterator[str]:
    """For people, in columns."""
    yield "Bus"
    if not found.processes:
        yield "  no process of windowbox answers"
    for process in found.processes:
        yield f"  {process['role']:<7} {process['process']:<28} metrics http://{process['metrics']}/metrics"
        for what, state in sorted(process.get("watches", {}).items()):
            yield f"          {what}: {state}"
        for zone in process.get("zones", ()):
            state = "connected" if zone["connected"] else "not connected"
            state = "paused, since the server refuses every update" if zone["breaker_open"] else state
            yield f"          zone {zone['zone']}: {state}, {zone['waiting']} changes waiting"
    width = max([24, *(len(pool.pool) for pool in found.pools)])
    yield f"  {'POOL':<{width}} {'WORKERS':>7} {'WAITING':>8} {'IN FLIGHT':>9} {'OLDEST':>8} {'UNROUTED':>8}"
    for pool in found.pools:
        oldest = f"{pool.oldest_seconds:.1f} s" if pool.waiting or pool.in_flight else "-"
        yield (
            f"  {pool.pool:<{width}} {pool.workers:>7} {pool.waiting:>8} {pool.in_flight:>9} {oldest:>8} "
            f"{pool.unrouted:>8}"
        )
    if (reports := found.reports) is not None:
        oldest = f"{reports.oldest_seconds:.1f} s" if reports.waiting or reports.in_hand else "-"
        direct = f"  {'patch, direct writes':<{width}} {'':>7}"
        yield f"{direct} {reports.waiting:>8} {reports.in_hand:>9} {oldest:>8}"
    yield f"  {'STREAM':<24} {'MESSAGES':>16} {'SIZE':>18}"
    for stream in found.streams:
        yield f"  {stream.name:<24} {stream.messages:>16,} {size(stream.bytes):>18}"
    if found.server:
        yield server_line(found.server)
    yield from (f"  {line}" for line in edge_lines(found.edge))


def server_line(figures: dict[str, Any]) -> str:
    return (
        f"  nats-server {figures['version']}: up {figures['uptime']}, {size(figures['mem'] or 0)} of memory, "
        f"{figures['cpu']} % of a core, {figures['connections']} connections"
    )
