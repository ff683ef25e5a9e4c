"""Streams and leases as the NATS server describes them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from bus import streams, subjects
from bus.leases import leases, liveness
from bus.transport import buckets, consumers
from bus.transport.connection import ApiError, Bus
from windowbox.errors import WindowboxError

_LEASES = f"KV_{streams.LEASES}"


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
