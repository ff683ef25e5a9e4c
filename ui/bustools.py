"""Pools, streams and leases as the NATS server describes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from bus import intents, streams, subjects
from bus.leases import leases, liveness
from bus.transport import buckets, consumers
from bus.transport.connection import ApiError, Bus
from bus.workqueue.queue import Queue
from windowbox.errors import WindowboxError
from windowbox.kinds import POOLS

_MONITOR_SECONDS = 2.0
_LEASES = f"KV_{streams.LEASES}"


@dataclass(frozen=True)
class PoolState:
    """A pool's queue, and who works for it."""

    name: str
    workers: int = 0
    waiting: int = 0
    in_flight: int = 0
    oldest: float = 0.0
    """Seconds since the oldest wish that is not fulfilled."""
    redelivered: int = 0
    """Items in flight that were delivered before, to a worker that did not finish them."""
    unrouted: int = 0
    """Changes that have not been mapped to keys yet."""


@dataclass(frozen=True)
class Stream:
    name: str
    messages: int
    bytes: int
    limit: int
    leader: str
    """Empty for a single server."""
    behind: tuple[str, ...]
    """Servers whose copy is not current."""


@dataclass(frozen=True)
class Lease:
    name: str
    holder: str
    """The process; empty if nobody holds it."""


async def pools(bus: Bus, processes: Sequence[dict[str, Any]]) -> list[PoolState]:
    """All pools. `processes` are those that have described themselves."""
    names = (*POOLS, intents.PATCH)
    return list(await asyncio.gather(*(_pool(bus, name, processes) for name in names)))


async def _pool(bus: Bus, pool: str, processes: Sequence[dict[str, Any]]) -> PoolState:
    workers = sum(any(each["pool"] == pool for each in p.get("pools", ())) for p in processes)
    try:
        items = await bus.api(f"CONSUMER.INFO.{streams.WORK}.pool-{pool}")
    except ApiError:  # no worker has ever served the pool, but objects may wait
        request = {"subjects_filter": subjects.item(pool, ">")}
        state: dict[str, Any] = {}
        with contextlib.suppress(ApiError):
            state = (await bus.api(f"STREAM.INFO.{streams.WORK}", request))["state"]
        return PoolState(pool, workers, len(state.get("subjects") or ()))
    waiting, in_flight, oldest = int(items["num_pending"]), int(items["num_ack_pending"]), 0.0
    if waiting or in_flight:
        oldest = (await Queue(bus, pool).depth()).oldest_seconds
    unrouted = 0
    if pool != intents.PATCH:
        with contextlib.suppress(ApiError):
            routing = await bus.api(f"CONSUMER.INFO.{streams.OBJECTS}.route-{pool}")
            unrouted = int(routing["num_pending"]) + int(routing["num_ack_pending"])
    return PoolState(pool, workers, waiting, in_flight, oldest, int(items["num_redelivered"]), unrouted)


async def stored(bus: Bus) -> list[Stream]:
    """The streams that exist."""
    found = []
    for name in [wanted["name"] for wanted in streams.streams(1)]:
        with contextlib.suppress(ApiError):
            info = await bus.api(f"STREAM.INFO.{name}")
            state, cluster = info["state"], info.get("cluster") or {}
            replicas = cluster.get("replicas") or ()
            behind = tuple(str(one["name"]) for one in replicas if not one.get("current"))
            found.append(
                Stream(
                    name, int(state["messages"]), int(state["bytes"]), int(info["config"]["max_bytes"]),
                    str(cluster.get("leader") or "") if replicas else "", behind,
                )
            )  # fmt: skip
    return found


async def held(bus: Bus) -> list[Lease]:
    """All leases, and which process holds each."""
    holders, lives = dict[str, str](), dict[str, str]()
    prefix = subjects.entry(streams.LEASES, "")
    with contextlib.suppress(WindowboxError):
        async for one in consumers.snapshot(bus, _LEASES, [f"{prefix}>"]):
            if liveness.is_life(one.subject):
                if not buckets.gone(one):
                    lives[one.subject.removeprefix(liveness.subject(""))] = one.data.decode(errors="replace")
            elif not buckets.gone(one):
                holders[one.subject.removeprefix(prefix)] = one.headers.get(leases.HOLDER, "")
    return [Lease(name, lives.get(life, "")) for name, life in sorted(holders.items())]


async def server(monitor: str) -> dict[str, Any] | None:
    """The NATS server's own figures; None if it does not answer."""
    timeout = aiohttp.ClientTimeout(total=_MONITOR_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{monitor.rstrip('/')}/varz", allow_redirects=False) as answer,
        ):
            found: dict[str, Any] = await answer.json(content_type=None)
            return found
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
