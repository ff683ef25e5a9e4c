"""Presence: each process describes itself when it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import nats.errors
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
"""Set by processes that pull with a rank: those of 0.2.0 rank a consumer only if all processes set it."""
TAKING = ("work", "run")
"""Roles that take messages of ranked consumers."""
_WORKERS = tuple(f"{subjects.inbox(user)}." for user in ("worker", "runner"))
"""Inboxes of workers of 0.2.0, which ask each other. Other roles have no right to answer there."""
_PATIENCE = 0.4
"""Seconds to wait for processes without a life on the bus."""
_LATEST = 3.0
"""Seconds to wait for processes with a life on the bus: a busy process may answer late."""
_PACKED = "Windowbox-Packed"
_ALWAYS = ("role", "process", "metrics", "ready", "pools", RANKED)


@contextlib.asynccontextmanager
async def answering(bus: Bus, describe: Callable[[], dict[str, Any]]) -> AsyncIterator[None]:
    """Answer within the block what this process is and does."""

    async def answer(question: Msg) -> None:
        described = describe()
        if question.reply.startswith(_WORKERS) and described.get("role") not in TAKING:
            return
        data, headers, limit = orjson.dumps(described), None, bus.max_payload - 4096
        if len(data) > limit:
            data, headers = zlib.compress(data), {_PACKED: "zlib"}
        if len(data) > limit:
            data, headers = (
                orjson.dumps({name: described[name] for name in _ALWAYS if name in described}),
                None,
            )
        with translated("answer"):
            await bus.client.publish(question.reply, data, headers=headers)

    with translated("subscribe"):
        subscription = await bus.client.subscribe(SUBJECT, cb=answer)
    try:
        yield
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):  # the connection may be lost
            await subscription.unsubscribe()


async def processes(bus: Bus, roles: Sequence[str] = ()) -> list[dict[str, Any]]:
    """All processes that answer: at once, or a little later if they have a life on the bus.

    With `roles`, only the processes of these roles.
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
                for message in messages:
                    if data := message.data:
                        packed = _PACKED in (message.headers or {})
                        process = orjson.loads(zlib.decompress(data) if packed else data)
                        found += [process] if not roles or process["role"] in roles else []
                silent -= {process.get("process") for process in found}
    return sorted(found, key=lambda p: (p["role"], p["process"]))


async def living(bus: Bus, roles: Sequence[str]) -> set[str | None]:
    """The names of the processes with a life on the bus, some of which may just have ended."""
    keys = [liveness.subject(f"{role}.>") for role in roles] or [liveness.subject(">")]
    lives = consumers.snapshot(bus, f"KV_{streams.LEASES}", keys)
    try:
        return {stored.data.decode() async for stored in lives if not buckets.gone(stored)}
    except WindowboxError:
        return set()  # there are no leases yet, or the caller may not read them
