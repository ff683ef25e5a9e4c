"""Which processes are there: each answers for itself when asked."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import orjson
from nats.aio.msg import Msg

from bus import streams, subjects
from bus.leases import liveness
from bus.transport import buckets, consumers
from bus.transport.connection import Bus, translated
from bus.transport.consumers import Inbox
from windowbox.errors import WindowboxError

SUBJECT = "windowbox.processes"
RANKED = "ranked"
"""What processes say of themselves that ask with a rank (`bus/workqueue/ranks.py`)."""
TAKING = ("work", "run")
"""Roles that take messages of ranked consumers."""
_WORKERS = tuple(f"{subjects.inbox(user)}." for user in ("worker", "runner"))
"""Where workers ask each other. Processes of other roles have no right to answer there."""
_PATIENCE = 0.4
"""Seconds for those of which nobody knows whether they are there."""
_LATEST = 3.0
"""Seconds for those that live, by the bus: a process at work may be long in answering."""
_PACKED = "Windowbox-Packed"
_ALWAYS = ("role", "process", "metrics", "ready", "pools", RANKED)


@contextlib.asynccontextmanager
async def answering(bus: Bus, describe: Callable[[], dict[str, Any]]) -> AsyncIterator[None]:
    """Tell whoever asks what this process is and does."""

    async def answer(question: Msg) -> None:
        described = describe()
        if question.reply.startswith(_WORKERS) and described.get("role") not in TAKING:
            return
        data, headers = _encoded(described, bus.max_payload - 4096)
        with translated("answer"):
            await bus.client.publish(question.reply, data, headers=headers)

    with translated("subscribe"):
        subscription = await bus.client.subscribe(SUBJECT, cb=answer)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            await subscription.unsubscribe()


async def processes(bus: Bus, roles: Sequence[str] = ()) -> list[dict[str, Any]]:
    """All processes that answer within a moment, and those that live, if they answer soon.

    With `roles`, only those of these roles.
    """
    inbox, found = Inbox(), list[dict[str, Any]]()
    async with inbox.open(bus):
        asked = asyncio.get_running_loop().time()
        with translated("ask"):
            await bus.client.publish(SUBJECT, b"", reply=inbox.subject)
        silent = await living(bus, roles)
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout_at(asked + (_LATEST if silent else _PATIENCE)):
                    messages = await inbox.batch(None) or []
                told = [_decoded(message) for message in messages if message.data]
                found += [process for process in told if not roles or process["role"] in roles]
                silent -= {process.get("process") for process in found}
    return sorted(found, key=lambda p: (p["role"], p["process"]))


async def living(bus: Bus, roles: Sequence[str]) -> set[str | None]:
    """The processes that the bus counts as alive, as they call themselves. Not all need to be."""
    keys = [liveness.subject(f"{role}.>") for role in roles] or [liveness.subject(">")]
    lives = consumers.snapshot(bus, f"KV_{streams.LEASES}", keys)
    try:
        return {stored.data.decode() async for stored in lives if not buckets.gone(stored)}
    except WindowboxError:
        return set()  # where there are no leases yet, or who asks may not read them


def _encoded(described: dict[str, Any], limit: int) -> tuple[bytes, dict[str, str] | None]:
    """The answer: packed where it is too large for a message, and only what matters most if that is, too."""
    data = orjson.dumps(described)
    if len(data) <= limit:
        return data, None
    packed = zlib.compress(data)
    if len(packed) <= limit:
        return packed, {_PACKED: "zlib"}
    return orjson.dumps({name: described[name] for name in _ALWAYS if name in described}), None


def _decoded(message: Msg) -> dict[str, Any]:
    data = zlib.decompress(message.data) if _PACKED in (message.headers or {}) else message.data
    found: dict[str, Any] = orjson.loads(data)
    return found
